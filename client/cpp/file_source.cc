// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/file_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "client/cpp/errno_error.h"

namespace kvcompress {

absl::StatusOr<std::unique_ptr<FileSource>> FileSource::Open(
    const std::string& path) {
  const int fd = path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                             : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, "open", path);
  const int cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (cancel_fd < 0) {
    const int error = errno;
    close(fd);
    return ErrnoError(error, "open", path);
  }
  return absl::WrapUnique(
      new FileSource(path == "-" ? "/dev/stdin" : path, fd, cancel_fd));
}

FileSource::FileSource(std::string name, int fd, int cancel_fd)
    : name_(std::move(name)), fd_(fd), cancel_fd_(cancel_fd) {
  struct stat status;
  if (fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) {
    const off_t position = lseek(fd_, 0, SEEK_CUR);
    size_ = std::max<off_t>(status.st_size - std::max<off_t>(position, 0), 0);
  }
}

FileSource::~FileSource() {
  close(fd_);
  close(cancel_fd_);
}

absl::StatusOr<size_t> FileSource::Read(absl::Span<char> buffer) {
  while (true) {
    if (absl::Status status = Wait(); !status.ok()) return status;
    const ssize_t count = read(fd_, buffer.data(), buffer.size());
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR && errno != EAGAIN) {
      return ErrnoError(errno, "read", name_);
    }
  }
}

void FileSource::Cancel() { eventfd_write(cancel_fd_, 1); }

absl::Status FileSource::Wait() {
  pollfd fds[] = {{cancel_fd_, POLLIN, 0}, {fd_, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) {
    if (errno != EINTR) return ErrnoError(errno, "poll", name_);
  }
  if (fds[0].revents != 0) return absl::CancelledError("reading was cancelled");
  return absl::OkStatus();
}

}  // namespace kvcompress
