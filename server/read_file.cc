// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "file_descriptor.h"

namespace kvcompress {
namespace {

absl::Status Unfit(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", why));
}

absl::Status Failed(const std::string& path) {
  return Unfit(path, std::generic_category().message(errno));
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileStamp StampFrom(const struct stat& found) {
  return {.device = found.st_dev,
          .inode = found.st_ino,
          .size = found.st_size,
          .modified = Nanoseconds(found.st_mtim),
          .changed = Nanoseconds(found.st_ctim)};
}

}  // namespace

absl::StatusOr<FileStamp> StampOf(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return Failed(path);
  if (!S_ISREG(found.st_mode)) return Unfit(path, "not a regular file");
  return StampFrom(found);
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            uint64_t most, FileStamp* stamp) {
  // Without O_NONBLOCK a FIFO would make this wait for its writer.
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat found;
  if (!file.ok() || fstat(file.get(), &found) != 0) return Failed(path);
  if (!S_ISREG(found.st_mode)) return Unfit(path, "not a regular file");
  const auto announced = static_cast<uint64_t>(found.st_size);
  std::string bytes(std::min(announced, most) + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t count =
        read(file.get(), bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failed(path);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > most) {
    return Unfit(path, absl::StrCat("longer than ", most, " bytes"));
  }
  struct stat after;
  if (fstat(file.get(), &after) != 0) return Failed(path);
  if (size != announced || StampFrom(after) != StampFrom(found)) {
    return Unfit(path, "changed while it was read");
  }
  if (stamp != nullptr) *stamp = StampFrom(found);
  bytes.resize(size);
  return bytes;
}

}  // namespace kvcompress
