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
      std::optional<mode_t> mode, TemporaryHook hook);
  // The same with a temporary name, on any file system.
  static absl::StatusOr<std::unique_ptr<OutputFile>> CreateNamed(
      const std::string& path, const std::string& target,
      std::optional<mode_t> mode, TemporaryHook hook);

  ~RenamedFile() override;

  absl::Status Commit() override;

 private:
  RenamedFile(const std::string& path, int fd, std::string target,
              std::string temporary, TemporaryHook hook);

  // Gives a file without a name that of the target, or a temporary one where
  // the target is there. Returns an errno, or 0.
  int Link();
  // Ends the life of the temporary name.
  void Forget();

  const std::string target_;
  std::string temporary_;  // empty while there is none
  const TemporaryHook hook_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_RENAMED_FILE_H_
