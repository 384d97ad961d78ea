// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/errno_error.h"
#include "client/cpp/renamed_file.h"
#include "client/cpp/spooled_file.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

bool IsStandardOutputName(const std::string& path) {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" ||
         path == "/proc/self/fd/1";
}

// Where `path` leads, which need not exist.
absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  constexpr int kMaxLinks = 40;  // as the kernel's own limit
  std::string target = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    char link[PATH_MAX];
    const ssize_t size = readlink(target.c_str(), link, sizeof(link));
    if (size < 0) return target;
    const std::string next(link, static_cast<size_t>(size));
    const size_t slash = target.rfind('/');
    target = next[0] == '/' || slash == std::string::npos
                 ? next
                 : absl::StrCat(target.substr(0, slash + 1), next);
  }
  return ErrnoError(ELOOP, "open", path);
}

absl::StatusOr<std::unique_ptr<OutputFile>> OpenAndSpool(
    const std::string& path) {
  if (!IsStandardOutput(path)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return ErrnoError(errno, "open", path);
    return SpooledFile::Create(path, fd);
  }
  const int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return ErrnoError(errno, "open", "/dev/stdout");
  return SpooledFile::Create("/dev/stdout", fd);
}

}  // namespace

bool IsStandardOutput(const std::string& path) {
  if (IsStandardOutputName(path)) return true;
  struct stat file, output;
  return stat(path.c_str(), &file) == 0 && fstat(STDOUT_FILENO, &output) == 0 &&
         !S_ISCHR(file.st_mode) && file.st_dev == output.st_dev &&
         file.st_ino == output.st_ino;
}

absl::Status SameFileError(const std::string& output) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat(output,
                   " is a file that is read, which the output would "
                   "replace: give the output another name"),
      {.reason = "SAME_FILE", .field = "output_path"});
}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(
    const std::string& path, const OutputOptions& options) {
  const bool to_stdout = IsStandardOutput(path);
  const std::optional<FileIdentity> there =
      to_stdout ? IdentityOf(STDOUT_FILENO) : IdentityOf(path);
  if (there && std::find(options.inputs.begin(), options.inputs.end(), there) !=
                   options.inputs.end()) {
    return SameFileError(path);
  }
  if (to_stdout) return OpenAndSpool(path);
  struct stat status;
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) return OpenAndSpool(path);
  std::optional<mode_t> mode = options.permissions;
  if (exists) {
    if (!options.overwrite) return ErrnoError(EEXIST, "open", path);
    // The rename would not ask for this permission, but overwriting needs it.
    if (access(path.c_str(), W_OK) != 0) return ErrnoError(errno, "open", path);
    if (!mode) mode = status.st_mode & 0777;
  }
  absl::StatusOr<std::string> target = FollowLinks(path);
  if (!target.ok()) return target.status();
  return RenamedFile::Create(path, *target, mode, options);
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OutputFile::WriteAt(uint64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno != EINTR) return ErrnoError(errno, "write", path_);
    if (count <= 0) continue;
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace kvcompress
