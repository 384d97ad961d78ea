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
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/errno_error.h"

namespace kvcompress {
namespace {

constexpr char kStandardInput[] = "/dev/stdin";
constexpr int kWithoutEnd = -1;

bool CanReadStandardInput() {
  const int flags = fcntl(STDIN_FILENO, F_GETFL);
  return flags >= 0 && (flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_WRONLY;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileSource>> FileSource::Open(
    const std::string& path) {
  if (path == "-" && !CanReadStandardInput()) {
    return absl::FailedPreconditionError("standard input is closed");
  }
  const int fd =
      path == "-"
          ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
          // Opening a FIFO would wait for its writer.
          : open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, "open", path);
  const int cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (cancel_fd < 0) {
    const int error = errno;
    close(fd);
    return ErrnoError(error, "open", path);
  }
  return absl::WrapUnique(
      new FileSource(path == "-" ? kStandardInput : path, fd, cancel_fd));
}

FileSource::FileSource(std::string name, int fd, int cancel_fd)
    : name_(std::move(name)), fd_(fd), cancel_fd_(cancel_fd) {
  struct stat status = {};
  if (fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) {
    const off_t position = lseek(fd_, 0, SEEK_CUR);
    size_ = std::max<off_t>(status.st_size - std::max<off_t>(position, 0), 0);
    permissions_ = status.st_mode & 0666;
  }
  // Standard input has been opened, and so has had a writer.
  awaits_writer_ = name_ != kStandardInput && S_ISFIFO(status.st_mode);
}

FileSource::~FileSource() {
  close(fd_);
  close(cancel_fd_);
}

absl::StatusOr<size_t> FileSource::Read(absl::Span<char> buffer) {
  if (awaits_writer_) return ReadFirst(buffer);
  while (true) {
    absl::Status status = Wait(kWithoutEnd).status();
    if (!status.ok()) return status;
    const ssize_t count = read(fd_, buffer.data(), buffer.size());
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR && errno != EAGAIN) {
      return ErrnoError(errno, "read", name_);
    }
  }
}

void FileSource::Cancel() { eventfd_write(cancel_fd_, 1); }

// A FIFO without a writer is at its end, and so is one whose writer has gone:
// only poll tells them apart. With a writer that is silent, reading has to
// wait.
absl::StatusOr<size_t> FileSource::ReadFirst(absl::Span<char> buffer) {
  constexpr int kStepMs = 20;
  const absl::Time deadline = absl::Now() + kFifoPatience;
  while (true) {
    const absl::StatusOr<int> events = Wait(kStepMs);
    if (!events.ok()) return events.status();
    const ssize_t count = read(fd_, buffer.data(), buffer.size());
    const bool has_writer = count < 0 && errno == EAGAIN;
    if (count > 0 || has_writer || (*events & POLLHUP) != 0) {
      awaits_writer_ = false;
      return count >= 0 ? static_cast<size_t>(count) : Read(buffer);
    }
    if (count < 0 && errno != EINTR) return ErrnoError(errno, "read", name_);
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "open ", name_, ": it is a FIFO, and nothing has opened it for ",
          "writing within ", absl::FormatDuration(kFifoPatience)));
    }
  }
}

absl::StatusOr<int> FileSource::Wait(int timeout) {
  pollfd fds[] = {{cancel_fd_, POLLIN, 0}, {fd_, POLLIN, 0}};
  while (poll(fds, 2, timeout) < 0) {
    if (errno != EINTR) return ErrnoError(errno, "poll", name_);
  }
  if (fds[0].revents != 0) return absl::CancelledError("reading was cancelled");
  return fds[1].revents;
}

}  // namespace kvcompress
