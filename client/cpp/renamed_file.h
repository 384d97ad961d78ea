// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// An OutputFile that a rename publishes: for regular files.

#ifndef KVCOMPRESS_CLIENT_CPP_RENAMED_FILE_H_
#define KVCOMPRESS_CLIENT_CPP_RENAMED_FILE_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcompress/output_file.h"

namespace kvcompress {

class RenamedFile : public OutputFile {
 public:
  // `target` is where `path`, the caller's name, leads. It gets the permissions
  // `mode`; when not set, those of a new file under the process's umask.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path, const std::string& target,
      std::optional<mode_t> mode, TemporaryHook hook);

  ~RenamedFile() override;

  absl::Status Commit() override;

 private:
  RenamedFile(const std::string& path, int fd, std::string target,
              std::string temporary, TemporaryHook hook);

  // Ends the life of the temporary name.
  void Forget();

  const std::string target_;
  std::string temporary_;  // empty once it is gone
  const TemporaryHook hook_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_RENAMED_FILE_H_
