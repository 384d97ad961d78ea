// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A file, a pipe or standard input as a source of bytes.

#ifndef KVCOMPRESS_FILE_SOURCE_H_
#define KVCOMPRESS_FILE_SOURCE_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kvcompress/byte_stream.h"
#include "kvcompress/file_identity.h"

namespace kvcompress {

class FileSource : public ByteSource {
 public:
  // How long Read waits for the first process that writes to a FIFO. One that
  // has a writer, such as a process substitution, is waited for like any pipe.
  static constexpr absl::Duration kFifoPatience = absl::Seconds(5);

  // Opens `path`; "-" is standard input, FAILED_PRECONDITION when that is
  // closed. Never blocks.
  // Errors read like Go's: "open PATH: no such file or directory".
  static absl::StatusOr<std::unique_ptr<FileSource>> Open(
      const std::string& path);

  ~FileSource() override;

  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  // DEADLINE_EXCEEDED when nothing writes to a FIFO.
  absl::StatusOr<size_t> Read(absl::Span<char> buffer) override;
  void Cancel() override;

  // Bytes from where reading began to the end; unknown unless this is a regular
  // file.
  std::optional<uint64_t> size() const { return size_; }

  // Of what is read, for OutputOptions.
  std::optional<FileIdentity> identity() const { return IdentityOf(fd_); }
  // Who may read and write a regular file, for OutputOptions.
  std::optional<mode_t> permissions() const { return permissions_; }

 private:
  FileSource(std::string name, int fd, int cancel_fd);

  // Blocks until there is something to read, for so many milliseconds, or
  // without end if negative. Returns what poll reports of the file. CANCELLED
  // after Cancel.
  absl::StatusOr<int> Wait(int timeout);
  // The first bytes of a FIFO.
  absl::StatusOr<size_t> ReadFirst(absl::Span<char> buffer);

  const std::string name_;
  const int fd_;
  const int cancel_fd_;  // an eventfd
  std::optional<uint64_t> size_;
  std::optional<mode_t> permissions_;
  bool awaits_writer_ = false;  // of a FIFO
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_FILE_SOURCE_H_
