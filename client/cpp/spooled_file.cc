// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/spooled_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/errno_error.h"

namespace kvcompress {

absl::StatusOr<std::unique_ptr<OutputFile>> SpooledFile::Create(
    const std::string& path, int target_fd) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
  const char* directory = std::getenv("TMPDIR");
  if (directory == nullptr || *directory == '\0') directory = "/tmp";
  // A file without a name goes with a process that is killed.
  int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) {
    std::string temporary = absl::StrCat(directory, "/kv-compress.XXXXXX");
    fd = mkostemp(temporary.data(), O_CLOEXEC);
    if (fd >= 0) unlink(temporary.c_str());
  }
  if (fd < 0) {
    const int error = errno;
    close(target_fd);
    return ErrnoError(error, "create a temporary file in", directory);
  }
  return absl::WrapUnique(new SpooledFile(path, fd, target_fd));
}

SpooledFile::SpooledFile(const std::string& path, int fd, int target_fd)
    : OutputFile(path), target_fd_(target_fd) {
  SetFd(fd);
}

SpooledFile::~SpooledFile() { close(target_fd_); }

absl::Status SpooledFile::Commit() {
  if (lseek(fd(), 0, SEEK_SET) != 0) return ErrnoError(errno, "seek", path());
  std::string buffer(1 << 20, '\0');
  while (true) {
    const ssize_t filled = read(fd(), buffer.data(), buffer.size());
    if (filled < 0 && errno == EINTR) continue;
    if (filled < 0) return ErrnoError(errno, "read the spool of", path());
    if (filled == 0) return absl::OkStatus();
    for (ssize_t done = 0; done < filled;) {
      const ssize_t count =
          write(target_fd_, buffer.data() + done, filled - done);
      if (count < 0 && errno != EINTR) {
        return ErrnoError(errno, "write", path());
      }
      if (count > 0) done += count;
    }
  }
}

}  // namespace kvcompress
