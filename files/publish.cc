// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "files/publish.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kPrefix = ".kvcompress-";
constexpr absl::string_view kSuffix = ".tmp";
constexpr size_t kDigits = 16;

int ErrnoOf(int result) { return result == 0 ? 0 : errno; }

bool IsTemporaryName(absl::string_view name) {
  return name.size() == kPrefix.size() + kDigits + kSuffix.size() &&
         absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kSuffix);
}

// A link never replaces a name.
int LinkUnnamed(int fd, int folder, const std::string& name) {
  const std::string self = absl::StrCat("/proc/self/fd/", fd);
  return ErrnoOf(
      linkat(AT_FDCWD, self.c_str(), folder, name.c_str(), AT_SYMLINK_FOLLOW));
}

// Whoever gave the file this name moves it away before the lock is free, so
// that a file with both has no owner.
void RemoveLeftover(int folder, const char* name) {
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  // Network file systems lock only what is open for writing.
  int fd = openat(folder, name, O_RDWR | kFlags);
  if (fd < 0) fd = openat(folder, name, O_RDONLY | kFlags);
  if (fd < 0) return;
  struct stat file, named;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
      file.st_uid == geteuid() && HoldTemporary(fd) == 0 &&
      fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      named.st_dev == file.st_dev && named.st_ino == file.st_ino) {
    unlinkat(folder, name, 0);
  }
  close(fd);
}

}  // namespace

std::string TemporaryName() {
  std::random_device random;
  return absl::StrCat(kPrefix, absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8), kSuffix);
}

int HoldTemporary(int fd) { return ErrnoOf(flock(fd, LOCK_EX | LOCK_NB)); }

int CreateTemporary(int folder, mode_t mode,
                    absl::FunctionRef<void(const std::string&)> hook) {
  while (true) {
    const std::string name = TemporaryName();
    hook(name);
    const int fd = openat(folder, name.c_str(),
                          O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
      const int error = errno;
      hook("");
      errno = error;
      return -1;
    }
    // Before it had the lock, another process may have taken it for a leftover.
    if (HoldTemporary(fd) != EWOULDBLOCK &&
        faccessat(folder, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
      return fd;
    }
    close(fd);
    unlinkat(folder, name.c_str(), 0);
  }
}

int PublishUnnamed(int fd, int folder, const std::string& name, Taken taken,
                   absl::FunctionRef<void(const std::string&)> hook) {
  int error = LinkUnnamed(fd, folder, name);
  if (error != EEXIST || taken == Taken::kRefuse) return error;
  const std::string temporary = TemporaryName();
  HoldTemporary(fd);
  hook(temporary);
  error = LinkUnnamed(fd, folder, temporary);
  if (error == 0) {
    error = PublishNamed(folder, temporary, name, taken);
    if (error != 0) unlinkat(folder, temporary.c_str(), 0);
  }
  hook("");
  return error;
}

int PublishNamed(int folder, const std::string& temporary,
                 const std::string& name, Taken taken) {
  if (taken == Taken::kReplace) {
    return ErrnoOf(renameat(folder, temporary.c_str(), folder, name.c_str()));
  }
  const int error = ErrnoOf(renameat2(folder, temporary.c_str(), folder,
                                      name.c_str(), RENAME_NOREPLACE));
  const bool unknown = error == EINVAL || error == ENOSYS;
  return unknown ? MoveByLink(folder, temporary, name) : error;
}

int MoveByLink(int folder, const std::string& temporary,
               const std::string& name) {
  const int error =
      ErrnoOf(linkat(folder, temporary.c_str(), folder, name.c_str(), 0));
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS) {
    return MoveByClaim(folder, temporary, name);
  }
  if (error == 0) unlinkat(folder, temporary.c_str(), 0);
  return error;
}

int MoveByClaim(int folder, const std::string& temporary,
                const std::string& name) {
  const int claim = openat(folder, name.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (claim < 0) return errno;
  close(claim);
  const int error =
      ErrnoOf(renameat(folder, temporary.c_str(), folder, name.c_str()));
  if (error != 0) unlinkat(folder, name.c_str(), 0);
  return error;
}

void RemoveLeftovers(int folder) {
  const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  DIR* const entries = fdopendir(fd);
  if (entries == nullptr) {
    close(fd);
    return;
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): each stream has one reader.
  while (const dirent* const entry = readdir(entries)) {
    if (IsTemporaryName(entry->d_name)) RemoveLeftover(fd, entry->d_name);
  }
  closedir(entries);
}

void RemoveLeftoversOnce(int folder) {
  constexpr size_t kMaxRemembered = 1024;
  // Device, inode, and the time of creation, as inodes are used again.
  using Key = std::array<uint64_t, 5>;
  static std::mutex mutex;
  static auto* const seen = new std::set<Key>;
  struct statx found = {};
  if (statx(folder, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &found) == 0) {
    const std::lock_guard lock(mutex);
    if (seen->size() >= kMaxRemembered) seen->clear();
    const Key key = {found.stx_dev_major, found.stx_dev_minor, found.stx_ino,
                     static_cast<uint64_t>(found.stx_btime.tv_sec),
                     found.stx_btime.tv_nsec};
    if (!seen->insert(key).second) return;
  }
  RemoveLeftovers(folder);
}

}  // namespace kvcompress
