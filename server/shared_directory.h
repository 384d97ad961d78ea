// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The directory in which clients of this machine name files, and the files in
// it. Everything in it is hostile: other processes create, replace, cut and
// link files there at any moment.
//
// So no name is resolved twice, none leads out, and nothing is mapped into
// memory: a mapped file that is cut ends the process with SIGBUS, and one that
// is written to changes under a decoder that has checked it.

#ifndef KVCOMPRESS_SERVER_SHARED_DIRECTORY_H_
#define KVCOMPRESS_SERVER_SHARED_DIRECTORY_H_

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "file_descriptor.h"

namespace kvcompress {

// A regular file that is being read.
class SharedInput {
 public:
  SharedInput(FileDescriptor fd, const struct stat& found, bool unsettled)
      : fd_(std::move(fd)), found_(found), unsettled_(unsettled) {}

  int fd() const { return fd_.get(); }
  // Bytes, and permissions, when it was opened.
  uint64_t size() const { return static_cast<uint64_t>(found_.st_size); }
  mode_t mode() const { return found_.st_mode & 0666; }
  bool Is(const struct stat& file) const {
    return file.st_dev == found_.st_dev && file.st_ino == found_.st_ino;
  }

  // Whether the file may change without CheckUnchanged seeing it. A write sets
  // the times when it begins, so that one that was under way when the file was
  // opened, or began within the same tick of the clock, is not seen. Then only
  // reading twice detects it. False when nobody had the file open for writing,
  // or where the system does not report that, when it had not changed for 10 s.
  bool unsettled() const { return unsettled_; }

  // Whether somebody has it open for writing now; false where the system does
  // not report that.
  bool HasWriter() const;

  // ABORTED when the file is not as it was when it was opened: another size, or
  // times of change. Writing through a mapping need not change these.
  absl::Status CheckUnchanged() const;

 private:
  FileDescriptor fd_;
  struct stat found_;
  bool unsettled_;
};

// The error ABORTED, with the reason INPUT_CHANGED.
absl::Status InputChanged();

// What becomes of a file that is there already.
enum class Existing {
  kRefuse,
  kReplace,
  kReuse,  // overwritten, where it is the server's and has no other name
};

// A new file has no name until it is complete, so a killed server leaves
// nothing. A reused file has a temporary name during the call. A file that
// replaces another has one for a moment. If the server is killed then, the
// temporary name remains; files/publish.h says how it is removed.
class SharedOutput {
 public:
  // In the directory `parent`, to be called `name`; `temporary` is the name
  // that a file has which is reused.
  SharedOutput(FileDescriptor parent, std::string name, FileDescriptor file,
               bool overwrite, std::string temporary = "")
      : parent_(std::move(parent)),
        name_(std::move(name)),
        file_(std::move(file)),
        overwrite_(overwrite),
        temporary_(std::move(temporary)) {}
  // Without a call of Publish that returned OK, nothing is left of it.
  ~SharedOutput();
  SharedOutput(SharedOutput&&) = default;
  SharedOutput& operator=(SharedOutput&&) = delete;

  // RESOURCE_EXHAUSTED when there is no space. Thread safe.
  absl::Status WriteAt(uint64_t offset, absl::string_view bytes);

  // Flushes the file, and sets its name and these permissions. Once.
  absl::Status Publish(mode_t mode);

 private:
  FileDescriptor parent_;
  std::string name_;
  FileDescriptor file_;
  bool overwrite_;
  std::string temporary_;  // empty for a file without a name
  uint64_t end_ = 0;       // of what was written
};

// Thread safe.
class SharedDirectory {
 public:
  // INVALID_ARGUMENT when `path` is no directory that can be read.
  static absl::StatusOr<std::shared_ptr<const SharedDirectory>> Open(
      const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t device() const { return device_; }
  uint64_t inode() const { return inode_; }

  // `path` is relative, as CompressFileRequest says. `field` is what errors
  // name: INVALID_ARGUMENT for a path that breaks the rules, NOT_FOUND,
  // PERMISSION_DENIED, FAILED_PRECONDITION for a link on the way and for what
  // is not a regular file.
  absl::StatusOr<SharedInput> OpenInput(const std::string& path,
                                        const char* field) const;
  // The same; ALREADY_EXISTS for a file that is there, with kRefuse;
  // UNIMPLEMENTED where the file system has no files without a name;
  // INVALID_ARGUMENT where the name is one of `input`, which may be null.
  absl::StatusOr<SharedOutput> CreateOutput(const std::string& path,
                                            Existing existing,
                                            const char* field,
                                            const SharedInput* input) const;

  // Removes what killed servers left in the directory itself, and not in those
  // below: there the first output does that.
  void RemoveLeftovers() const;

 private:
  SharedDirectory(std::string path, FileDescriptor fd, const struct stat& found)
      : path_(std::move(path)),
        fd_(std::move(fd)),
        device_(found.st_dev),
        inode_(found.st_ino) {}

  const std::string path_;
  const FileDescriptor fd_;
  const uint64_t device_;
  const uint64_t inode_;
};

// Opens `path` beneath the directory `root`, following no link. An open file,
// or -1 with errno: ELOOP for a link. REQUIRES: the path obeys the rules.
int OpenBeneath(int root, const std::string& path, int flags);
// The same on kernels without openat2: one component after the other.
int OpenBeneathStepwise(int root, const std::string& path, int flags);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_SHARED_DIRECTORY_H_
