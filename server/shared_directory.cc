// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "shared_directory.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "files/publish.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kNotRegular = "is not a regular file";

absl::Status PathError(absl::StatusCode code, absl::string_view path,
                       absl::string_view why, const std::string& reason,
                       const char* field,
                       std::optional<uint64_t> limit = std::nullopt) {
  return MakeError(code, absl::StrCat("file ", QuoteName(path), " ", why),
                   {.reason = reason, .limit = limit, .field = field});
}

// What the system said when it was asked for `path`. INTERNAL is for what no
// client can bring about: errors of the device, and faults of this program.
absl::Status SystemError(int error, absl::string_view path, const char* field) {
  const std::string why = std::generic_category().message(error);
  ErrorDetail detail;
  absl::StatusCode code = absl::StatusCode::kInternal;
  switch (error) {
    case ENAMETOOLONG:
    case EINVAL:
    case EILSEQ:
      // The file system's own rules for names.
      code = absl::StatusCode::kInvalidArgument;
      detail.reason = "INVALID_PATH";
      break;
    case ENOENT:
    case ENOTDIR:
    case ESTALE:
      code = absl::StatusCode::kNotFound;
      detail.reason = "NO_SUCH_FILE";
      break;
    case EEXIST:
      code = absl::StatusCode::kAlreadyExists;
      detail.reason = "FILE_EXISTS";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
    case ETXTBSY:
      code = absl::StatusCode::kPermissionDenied;
      detail.reason = "FILE_ACCESS";
      break;
    case ELOOP:
    case EXDEV:
      code = absl::StatusCode::kFailedPrecondition;
      detail.reason = "LINK_IN_PATH";
      break;
    case EISDIR:
    case ENXIO:
    case ENODEV:
    case EOVERFLOW:
      code = absl::StatusCode::kFailedPrecondition;
      detail.reason = "NOT_A_REGULAR_FILE";
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMLINK:
      code = absl::StatusCode::kResourceExhausted;
      detail.reason = "NO_SPACE";
      break;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      code = absl::StatusCode::kResourceExhausted;
      detail.reason = "OUT_OF_FILES";
      break;
    case EAGAIN:
    case EBUSY:
    case EINTR:
      code = absl::StatusCode::kUnavailable;
      detail.reason = "FILE_BUSY";
      break;
    case EOPNOTSUPP:
      code = absl::StatusCode::kUnimplemented;
      detail.reason = "NO_UNNAMED_FILES";
      break;
    default:
      detail.reason = "FILE_ERROR";
  }
  return PathError(code, path, absl::StrCat("cannot be used: ", why),
                   detail.reason, field);
}

absl::Status CheckPath(const std::string& path, const char* field) {
  const auto refuse = [&](absl::string_view why,
                          std::optional<uint64_t> limit = std::nullopt) {
    return PathError(absl::StatusCode::kInvalidArgument, path, why,
                     "INVALID_PATH", field, limit);
  };
  if (path.empty()) return refuse("is empty");
  if (path.size() >= PATH_MAX) {
    return refuse(absl::StrCat("has a path of ", path.size(), " bytes"),
                  PATH_MAX - 1);
  }
  if (path.find('\0') != std::string::npos)
    return refuse("contains a NUL byte");
  if (path[0] == '/') {
    return refuse("is absolute, not within the shared directory");
  }
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == "..") {
      return refuse("has a component that is empty, . or ..");
    }
    if (part.size() > NAME_MAX) {
      return refuse(absl::StrCat("has a component of ", part.size(), " bytes"),
                    NAME_MAX);
    }
  }
  return absl::OkStatus();
}

// Whether a file is the server's own, has one name, and is not what is read.
bool MayReuse(const struct stat& found, const SharedInput* input) {
  return S_ISREG(found.st_mode) && found.st_nlink == 1 &&
         found.st_uid == geteuid() && (input == nullptr || !input->Is(found));
}

// Opens the file `name` in `parent` and moves it to the name `*temporary`; none
// where it may not be reused, which then is where it was.
FileDescriptor TakeExisting(const FileDescriptor& parent,
                            const std::string& name, const SharedInput* input,
                            std::string* temporary) {
  FileDescriptor file(
      openat(parent.get(), name.c_str(),
             O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat found;
  if (!file.ok() || fstat(file.get(), &found) != 0 || !MayReuse(found, input) ||
      HoldTemporary(file.get()) == EWOULDBLOCK) {
    return FileDescriptor();
  }
  *temporary = TemporaryName();
  if (renameat2(parent.get(), name.c_str(), parent.get(), temporary->c_str(),
                RENAME_NOREPLACE) != 0) {
    return FileDescriptor();
  }
  // Another file may have come to have the name meanwhile, or this another one.
  struct stat moved;
  if (fstatat(parent.get(), temporary->c_str(), &moved, AT_SYMLINK_NOFOLLOW) ==
          0 &&
      moved.st_dev == found.st_dev && moved.st_ino == found.st_ino &&
      MayReuse(moved, input)) {
    return file;
  }
  renameat2(parent.get(), temporary->c_str(), parent.get(), name.c_str(),
            RENAME_NOREPLACE);
  return FileDescriptor();
}

// Whether somebody has a file open for writing.
enum class Writers { kNone, kSome, kUnknown };

// A lease for reading is given only while there are none. Whoever opens the
// file for writing before it is given back waits for that, and the signal that
// then comes is one that is ignored by default.
Writers WritersOf(int fd) {
  fcntl(fd, F_SETSIG, SIGURG);
  if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0) {
    return errno == EAGAIN ? Writers::kSome : Writers::kUnknown;
  }
  fcntl(fd, F_SETLEASE, F_UNLCK);
  return Writers::kNone;
}

// Fills in `found`; 0 or errno. The clock is read first, and the times last: a
// write that begins meanwhile is then seen, now or by CheckUnchanged.
int LookAt(int fd, struct stat* found, bool* unsettled) {
  constexpr time_t kLongestWrite = 10;  // seconds
  timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  const Writers writers = WritersOf(fd);
  if (fstat(fd, found) != 0) return errno;
  if (writers == Writers::kUnknown) now.tv_sec -= kLongestWrite;
  const timespec& changed = found->st_ctim;
  *unsettled = writers == Writers::kSome || changed.tv_sec > now.tv_sec ||
               (changed.tv_sec == now.tv_sec && changed.tv_nsec >= now.tv_nsec);
  return 0;
}

}  // namespace

int OpenBeneathStepwise(int root, const std::string& path, int flags) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  FileDescriptor folder;
  int at = root;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const int fd =
        openat(at, parts[i].c_str(),
               (last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR) {
      // A link instead of a folder says this too.
      struct stat found;
      const bool is_link =
          fstatat(at, parts[i].c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISLNK(found.st_mode);
      errno = is_link ? ELOOP : ENOTDIR;
    }
    if (fd < 0 || last) return fd;
    folder = FileDescriptor(fd);
    at = folder.get();
  }
  errno = EINVAL;
  return -1;
}

int OpenBeneath(int root, const std::string& path, int flags) {
  struct open_how how = {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const int64_t fd =
      syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how));
  // Older kernels do not know it, and older filters of containers forbid it.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
    return OpenBeneathStepwise(root, path, flags);
  }
  return static_cast<int>(fd);
}

bool SharedInput::HasWriter() const {
  return WritersOf(fd()) == Writers::kSome;
}

absl::Status SharedInput::CheckUnchanged() const {
  struct stat now;
  const auto same = [](const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  };
  if (fstat(fd(), &now) == 0 && now.st_size == found_.st_size &&
      same(now.st_mtim, found_.st_mtim) && same(now.st_ctim, found_.st_ctim)) {
    return absl::OkStatus();
  }
  return InputChanged();
}

absl::Status InputChanged() {
  return MakeError(absl::StatusCode::kAborted,
                   "the input was changed, truncated, renamed or removed while "
                   "it was read",
                   {.reason = "INPUT_CHANGED", .field = "input_path"});
}

absl::Status SharedOutput::WriteAt(uint64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(file_.get(), bytes.data(), bytes.size(),
                                 static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return SystemError(count < 0 ? errno : ENOSPC, name_, "output_path");
    }
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  std::atomic_ref<uint64_t> end(end_);
  uint64_t before = end;
  while (before < offset && !end.compare_exchange_weak(before, offset)) {
  }
  return absl::OkStatus();
}

SharedOutput::~SharedOutput() {
  if (temporary_.empty() || !parent_.ok()) return;
  unlinkat(parent_.get(), temporary_.c_str(), 0);
}

absl::Status SharedOutput::Publish(mode_t mode) {
  if (!temporary_.empty() &&
      ftruncate(file_.get(), static_cast<off_t>(end_)) != 0) {
    return SystemError(errno, name_, "output_path");
  }
  if (fchmod(file_.get(), mode) != 0 || fsync(file_.get()) != 0) {
    return SystemError(errno, name_, "output_path");
  }
  const Taken taken = overwrite_ ? Taken::kReplace : Taken::kRefuse;
  const int error = temporary_.empty()
                        ? PublishUnnamed(file_.get(), parent_.get(), name_,
                                         taken, [](const std::string&) {})
                        : PublishNamed(parent_.get(), temporary_, name_, taken);
  if (error != 0) return SystemError(error, name_, "output_path");
  temporary_.clear();
  // Makes the name survive a crash; a file system that cannot is no reason to
  // fail.
  fsync(parent_.get());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const SharedDirectory>> SharedDirectory::Open(
    const std::string& path) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shared directory ", QuoteName(path), ": ", why));
  };
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat found;
  if (!fd.ok() || fstat(fd.get(), &found) != 0) {
    return refuse(std::generic_category().message(errno));
  }
  return absl::WrapUnique(new SharedDirectory(path, std::move(fd), found));
}

absl::StatusOr<SharedInput> SharedDirectory::OpenInput(
    const std::string& path, const char* field) const {
  if (absl::Status status = CheckPath(path, field); !status.ok()) return status;
  // Without O_NONBLOCK a FIFO would make this wait for its writer.
  FileDescriptor fd(
      OpenBeneath(fd_.get(), path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (!fd.ok()) return SystemError(errno, path, field);
  struct stat found;
  bool unsettled = false;
  if (const int error = LookAt(fd.get(), &found, &unsettled); error != 0) {
    return SystemError(error, path, field);
  }
  if (!S_ISREG(found.st_mode)) {
    return PathError(absl::StatusCode::kFailedPrecondition, path, kNotRegular,
                     "NOT_A_REGULAR_FILE", field);
  }
  return SharedInput(std::move(fd), found, unsettled);
}

absl::StatusOr<SharedOutput> SharedDirectory::CreateOutput(
    const std::string& path, Existing existing, const char* field,
    const SharedInput* input) const {
  if (absl::Status status = CheckPath(path, field); !status.ok()) return status;
  const size_t slash = path.rfind('/');
  const std::string name =
      slash == std::string::npos ? path : path.substr(slash + 1);
  FileDescriptor parent(
      slash == std::string::npos
          ? openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
          : OpenBeneath(fd_.get(), path.substr(0, slash),
                        O_RDONLY | O_DIRECTORY));
  if (!parent.ok()) return SystemError(errno, path, field);
  RemoveLeftoversOnce(parent.get());
  struct stat found;
  if (fstatat(parent.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!S_ISREG(found.st_mode)) {
      return PathError(absl::StatusCode::kFailedPrecondition, path, kNotRegular,
                       "NOT_A_REGULAR_FILE", field);
    }
    if (input != nullptr && input->Is(found)) {
      return PathError(absl::StatusCode::kInvalidArgument, path,
                       "is the input, which the output would replace: give the "
                       "output another name",
                       "SAME_FILE", field);
    }
    if (existing == Existing::kRefuse) return SystemError(EEXIST, path, field);
    if (existing == Existing::kReuse) {
      std::string temporary;
      FileDescriptor file = TakeExisting(parent, name, input, &temporary);
      if (file.ok()) {
        return SharedOutput(std::move(parent), name, std::move(file),
                            /*overwrite=*/true, std::move(temporary));
      }
    }
  }
  FileDescriptor file(
      openat(parent.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  // File systems that have no such files say so in two ways.
  if (!file.ok()) {
    return SystemError(errno == EISDIR ? EOPNOTSUPP : errno, path, field);
  }
  return SharedOutput(std::move(parent), name, std::move(file),
                      existing != Existing::kRefuse);
}

void SharedDirectory::RemoveLeftovers() const {
  kvcompress::RemoveLeftovers(fd_.get());
}

}  // namespace kvcompress
