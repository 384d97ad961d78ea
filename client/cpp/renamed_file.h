// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// An OutputFile for regular files, which gets its name when it is complete.
//
// Until then it has none (O_TMPFILE), so that a process that is killed leaves
// nothing behind. A file that takes the place of another has a name next to it
// for the moment of Commit. File systems without such files, of networks for
// the most part, have a temporary name instead, from the beginning on.

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
      std::optional<mode_t> mode, const OutputOptions& options);
  // The same with a temporary name, on any file system.
  static absl::StatusOr<std::unique_ptr<OutputFile>> CreateNamed(
      const std::string& path, const std::string& target,
      std::optional<mode_t> mode, const OutputOptions& options);

  ~RenamedFile() override;

  absl::Status Commit() override;

 private:
  // Takes over `folder`, the target's.
  RenamedFile(const std::string& path, int folder, std::string target,
              const OutputOptions& options);

  // Remembers the temporary name, empty for none, and calls the hook with it.
  void SetTemporary(const std::string& name);

  const int folder_;
  const std::string target_;
  const OutputOptions options_;
  std::string temporary_;  // in the folder; empty while there is none
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_RENAMED_FILE_H_
