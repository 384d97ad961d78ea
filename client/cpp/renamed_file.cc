// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/renamed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/errno_error.h"
#include "files/publish.h"

namespace kvcompress {
namespace {

// Where the name of the last component begins.
size_t NameOffset(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? 0 : slash + 1;
}

std::string Folder(const std::string& path) {
  const size_t name = NameOffset(path);
  return name == 0 ? "./" : path.substr(0, name);
}

int OpenFolder(const std::string& target) {
  return open(Folder(target).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
}

// False with errno. A file system that gives all its files the same permissions
// is no reason to fail.
bool SetPermissions(int fd, mode_t mode) {
  return fchmod(fd, mode) == 0 || errno == EPERM || errno == EOPNOTSUPP;
}

// Makes the rename survive a crash. A directory that may not be opened, or a
// file system that cannot do this, is no reason to fail.
int SyncFolder(int folder) {
  const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return 0;
  const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFile>> RenamedFile::Create(
    const std::string& path, const std::string& target,
    std::optional<mode_t> mode, const OutputOptions& options) {
  const int folder = OpenFolder(target);
  if (folder < 0) return ErrnoError(errno, "open", path);
  auto file = absl::WrapUnique(new RenamedFile(path, folder, target, options));
  RemoveLeftoversOnce(folder);
  const int fd =
      openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode.value_or(0666));
  file->SetFd(fd);
  // What is wrong with the directory is found again, with a name. A file
  // without one is linked by that of its descriptor.
  if (fd < 0 || access(absl::StrCat("/proc/self/fd/", fd).c_str(), F_OK) != 0) {
    return CreateNamed(path, target, mode, options);
  }
  if (mode && !SetPermissions(fd, *mode)) {
    return ErrnoError(errno, "chmod", path);
  }
  return file;
}

absl::StatusOr<std::unique_ptr<OutputFile>> RenamedFile::CreateNamed(
    const std::string& path, const std::string& target,
    std::optional<mode_t> mode, const OutputOptions& options) {
  const int folder = OpenFolder(target);
  if (folder < 0) return ErrnoError(errno, "open", path);
  auto file = absl::WrapUnique(new RenamedFile(path, folder, target, options));
  const int fd = CreateTemporary(
      folder, mode.value_or(0666),
      [&](const std::string& name) { file->SetTemporary(name); });
  if (fd < 0) return ErrnoError(errno, "open", path);
  file->SetFd(fd);
  if (mode && !SetPermissions(fd, *mode)) {
    return ErrnoError(errno, "chmod", path);
  }
  return file;
}

RenamedFile::RenamedFile(const std::string& path, int folder,
                         std::string target, const OutputOptions& options)
    : OutputFile(path),
      folder_(folder),
      target_(std::move(target)),
      options_(options) {}

RenamedFile::~RenamedFile() {
  if (!temporary_.empty()) {
    unlinkat(folder_, temporary_.c_str(), 0);
    SetTemporary("");
  }
  close(folder_);
}

absl::Status RenamedFile::Commit() {
  if (fsync(fd()) != 0) return ErrnoError(errno, "sync", path());
  const std::string name = target_.substr(NameOffset(target_));
  const Taken taken = options_.overwrite ? Taken::kReplace : Taken::kRefuse;
  const bool named = !temporary_.empty();
  const int error = named ? PublishNamed(folder_, temporary_, name, taken)
                          : PublishUnnamed(fd(), folder_, name, taken,
                                           [this](const std::string& name) {
                                             SetTemporary(name);
                                           });
  if (error != 0) return ErrnoError(error, "rename", path());
  if (named) SetTemporary("");
  if (const int error = SyncFolder(folder_); error != 0) {
    return ErrnoError(error, "sync the directory of", path());
  }
  return absl::OkStatus();
}

void RenamedFile::SetTemporary(const std::string& name) {
  temporary_ = name;
  if (options_.temporary_hook == nullptr) return;
  options_.temporary_hook(
      name.empty() ? nullptr : absl::StrCat(Folder(target_), name).c_str());
}

}  // namespace kvcompress
