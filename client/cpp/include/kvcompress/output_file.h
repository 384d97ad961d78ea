// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Output that is either complete or not there.
//
// Bytes go to a temporary file, and Commit publishes it: a regular file by
// giving it its name, after everything has reached the disk; standard
// output, a pipe or a device by copying. Without Commit nothing is published
// and destruction removes what was written.

#ifndef KVCOMPRESS_OUTPUT_FILE_H_
#define KVCOMPRESS_OUTPUT_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/byte_stream.h"
#include "kvcompress/file_identity.h"

namespace kvcompress {

struct OutputOptions {
  // Told the name of a temporary file just before it is created, and null once
  // there is nothing to remove any more: for handlers of signals that end the
  // process.
  void (*temporary_hook)(const char* path) = nullptr;
  // Whether a file that has the name is replaced, also one that appears before
  // Commit.
  bool overwrite = true;
  // The files that the output is made from, which it must not replace; nothing
  // is no file.
  std::vector<std::optional<FileIdentity>> inputs = {};
  // Permissions of the output, as of the input that it is made from: what few
  // may read stays so. Nothing: those of the file that is replaced, or of any
  // new file.
  std::optional<mode_t> permissions = {};
};

// Not thread safe. Errors read like Go's: "write PATH: no space left on
// device".
class OutputFile : public ByteSink {
 public:
  // Prepares to write `path`; "-" is standard output. Symbolic links are
  // followed. The temporary file has no name in the target's directory, so that
  // it goes with a process that is killed; what will be copied instead is kept
  // so in $TMPDIR, or /tmp. ".kvcompress-0123456789abcdef.tmp" next to the
  // target is its name while a file is replaced, and all the time on file
  // systems that have no files without one: what SIGKILL leaves behind there is
  // removed by the next process that writes to that directory.
  // Opening a FIFO waits for its reader.
  //
  // INVALID_ARGUMENT with the reason SAME_FILE when `path` leads to one of the
  // inputs; ALREADY_EXISTS for a regular file that may not be overwritten.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path, const OutputOptions& options = {});

  ~OutputFile() override;

  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // May leave holes, which read as zeros.
  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override;

  // Publishes what was written. Call once. After an error nothing is published,
  // but for what a pipe or a device has already taken. ALREADY_EXISTS when
  // another process was faster, and may not be overwritten.
  virtual absl::Status Commit() = 0;

 protected:
  explicit OutputFile(std::string path);

  const std::string& path() const { return path_; }
  // The temporary file, once there is one.
  int fd() const { return fd_; }
  // Takes it over. Once.
  void SetFd(int fd) { fd_ = fd; }

 private:
  const std::string path_;
  int fd_ = -1;
};

// Whether writing to `path` writes to standard output: "-", its device names,
// or the very file or pipe it was redirected to.
bool IsStandardOutput(const std::string& path);

// The error SAME_FILE: `output` is a file that is read.
absl::Status SameFileError(const std::string& output);

}  // namespace kvcompress

#endif  // KVCOMPRESS_OUTPUT_FILE_H_
