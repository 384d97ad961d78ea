// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/renamed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/errno_error.h"

namespace kvcompress {
namespace {

std::string Directory(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

// A name that is as good as unique, short enough for any file system.
std::string TemporaryName(const std::string& target) {
  constexpr absl::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr size_t kLongestStem = 200;
  const size_t slash = target.rfind('/');
  const std::string stem =
      slash == std::string::npos ? target : target.substr(slash + 1);
  std::random_device random;
  std::uniform_int_distribution<size_t> pick(0, kLetters.size() - 1);
  std::string suffix;
  for (int i = 0; i < 6; ++i) suffix += kLetters[pick(random)];
  return absl::StrCat(Directory(target), ".", stem.substr(0, kLongestStem), ".",
                      suffix, ".tmp");
}

// Makes the rename survive a crash. A directory that may not be opened, or a
// file system that cannot do this, is no reason to fail.
int SyncDirectory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return 0;
  const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return error;
}

constexpr int kAttempts = 100;

// Gives `make` temporary names until it returns 0 or an errno other than
// EEXIST. The name, or empty with `*error`.
template <typename Make>
std::string MakeTemporary(const std::string& target,
                          OutputFile::TemporaryHook hook, Make make,
                          int* error) {
  for (int i = 0; i < kAttempts; ++i) {
    std::string temporary = TemporaryName(target);
    if (hook != nullptr) hook(temporary.c_str());
    *error = make(temporary.c_str());
    if (*error == 0) return temporary;
    if (*error != EEXIST) break;
  }
  if (hook != nullptr) hook(nullptr);
  return "";
}

// How a file without a name is linked.
std::string SelfPath(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFile>> RenamedFile::Create(
    const std::string& path, const std::string& target,
    std::optional<mode_t> mode, TemporaryHook hook) {
  const int fd = open(Directory(target).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC,
                      mode.value_or(0666));
  // What is wrong with the directory is found again, with a name.
  if (fd < 0) return CreateNamed(path, target, mode, hook);
  auto file = absl::WrapUnique(new RenamedFile(path, fd, target, "", hook));
  if (access(SelfPath(fd).c_str(), F_OK) != 0) {
    return CreateNamed(path, target, mode, hook);
  }
  if (mode && fchmod(fd, *mode) != 0) return ErrnoError(errno, "chmod", path);
  return file;
}

absl::StatusOr<std::unique_ptr<OutputFile>> RenamedFile::CreateNamed(
    const std::string& path, const std::string& target,
    std::optional<mode_t> mode, TemporaryHook hook) {
  int fd = -1;
  int error = 0;
  std::string temporary = MakeTemporary(
      target, hook,
      [&](const char* name) {
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                  mode.value_or(0666));
        return fd < 0 ? errno : 0;
      },
      &error);
  if (fd < 0) return ErrnoError(error, "open", path);
  auto file = absl::WrapUnique(
      new RenamedFile(path, fd, target, std::move(temporary), hook));
  if (mode && fchmod(fd, *mode) != 0) return ErrnoError(errno, "chmod", path);
  return file;
}

RenamedFile::RenamedFile(const std::string& path, int fd, std::string target,
                         std::string temporary, TemporaryHook hook)
    : OutputFile(path, fd),
      target_(std::move(target)),
      temporary_(std::move(temporary)),
      hook_(hook) {}

RenamedFile::~RenamedFile() {
  if (temporary_.empty()) return;
  unlink(temporary_.c_str());
  Forget();
}

absl::Status RenamedFile::Commit() {
  if (fsync(fd()) != 0) return ErrnoError(errno, "sync", path());
  if (temporary_.empty()) {
    if (const int error = Link(); error != 0) {
      return ErrnoError(error, "rename", path());
    }
  }
  if (const int error = Close(); error != 0) {
    return ErrnoError(error, "close", path());
  }
  if (!temporary_.empty()) {
    if (rename(temporary_.c_str(), target_.c_str()) != 0) {
      return ErrnoError(errno, "rename", path());
    }
    Forget();
  }
  if (const int error = SyncDirectory(Directory(target_)); error != 0) {
    return ErrnoError(error, "sync the directory of", path());
  }
  return absl::OkStatus();
}

// A link never replaces a name.
int RenamedFile::Link() {
  const std::string self = SelfPath(fd());
  const auto link_as = [&](const char* name) {
    return linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) ==
                   0
               ? 0
               : errno;
  };
  int error = link_as(target_.c_str());
  if (error != EEXIST) return error;
  temporary_ = MakeTemporary(target_, hook_, link_as, &error);
  return error;
}

void RenamedFile::Forget() {
  temporary_.clear();
  if (hook_ != nullptr) hook_(nullptr);
}

}  // namespace kvcompress
