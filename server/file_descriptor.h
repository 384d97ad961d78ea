// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A file descriptor that closes itself.

#ifndef KVCOMPRESS_SERVER_FILE_DESCRIPTOR_H_
#define KVCOMPRESS_SERVER_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace kvcompress {

class FileDescriptor {
 public:
  // Takes over `fd`; negative for none.
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  // Hands the descriptor over to the caller.
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (ok()) close(Release());
  }

 private:
  int fd_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_FILE_DESCRIPTOR_H_
