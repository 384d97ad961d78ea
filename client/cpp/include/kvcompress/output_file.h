// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Output that is either complete or not there.
//
// Bytes go to a temporary file, and Commit publishes it: a regular file by
// giving it its name, after everything has reached the disk; standard
// output, a pipe or a device by copying. Without Commit nothing is published
// and destruction removes what was written.

#ifndef KVCOMPRESS_OUTPUT_FILE_H_
#define KVCOMPRESS_OUTPUT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/byte_stream.h"

namespace kvcompress {

// Not thread safe. Errors read like Go's: "write PATH: no space left on
// device".
class OutputFile : public ByteSink {
 public:
  // Told the name of a temporary file just before it is created, and null once
  // there is nothing to remove any more: for handlers of signals that end the
  // process.
  using TemporaryHook = void (*)(const char* path);

  // Prepares to write `path`; "-" is standard output. Symbolic links are
  // followed. The temporary file has no name in the target's directory, so that
  // it goes with a process that is killed, and the permissions of the file it
  // will replace or those of any new file; what will be copied instead is kept
  // so in $TMPDIR, or /tmp. ".NAME.XXXXXX.tmp" next to the target is its name
  // while a file is replaced, and all the time on file systems that have no
  // files without one: there SIGKILL leaves it behind, to be removed once no
  // process writes it. Opening a FIFO waits for its reader.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path, TemporaryHook hook = nullptr);

  ~OutputFile() override;

  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // May leave holes, which read as zeros.
  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override;

  // Publishes what was written. Call once. After an error nothing is published,
  // but for what a pipe or a device has already taken.
  virtual absl::Status Commit() = 0;

 protected:
  OutputFile(std::string path, int fd);

  const std::string& path() const { return path_; }
  // The temporary file.
  int fd() const { return fd_; }
  // Closes it, once. Returns an errno, or 0.
  int Close();

 private:
  const std::string path_;
  int fd_;
};

// Whether writing to `path` writes to standard output: "-", its device names,
// or the very file or pipe it was redirected to.
bool IsStandardOutput(const std::string& path);

}  // namespace kvcompress

#endif  // KVCOMPRESS_OUTPUT_FILE_H_
