// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// An OutputFile that is copied when it is complete: for standard output, pipes
// and devices.

#ifndef KVCOMPRESS_CLIENT_CPP_SPOOLED_FILE_H_
#define KVCOMPRESS_CLIENT_CPP_SPOOLED_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcompress/output_file.h"

namespace kvcompress {

class SpooledFile : public OutputFile {
 public:
  // Takes over `target_fd`, open for writing on `path`.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path, int target_fd);

  ~SpooledFile() override;

  absl::Status Commit() override;

 private:
  SpooledFile(const std::string& path, int fd, int target_fd);

  const int target_fd_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_SPOOLED_FILE_H_
