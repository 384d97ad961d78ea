// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The profiles of a server: the files of a directory that end in ".profile",
// read at the start and again when they appear, change or vanish.

#ifndef KVCOMPRESS_SERVER_PROFILE_DIRECTORY_H_
#define KVCOMPRESS_SERVER_PROFILE_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "periodic.h"
#include "profile_set.h"
#include "read_file.h"

namespace kvcompress {

struct ProfileDirectoryOptions {
  std::string path;
  // Most bytes of all profiles together: of those that are loaded, and of those
  // that no longer are and that calls still use.
  uint64_t max_bytes = uint64_t{256} << 20;
  // How often to look whether files have changed.
  absl::Duration interval = absl::Seconds(10);
};

// Told by a directory; the calls come one at a time.
struct ProfileEvents {
  // The profiles, at the start and after every change.
  std::function<void(const ProfileSet&)> changed;
  // A file was refused, files were left out, or the directory could not be
  // read. Once for each file until it changes, once for each time that more are
  // left out, and once for each reason of the directory in a row.
  std::function<void()> refused;
};

// A file NAME.profile is the profile NAME; NAME is of 1 to 80 letters, digits,
// `.`, `_` and `-`, begins with a letter or a digit, and is not `none`. Other
// files, and those whose names begin with a dot, do not count. Links are
// followed: Kubernetes puts its volumes together of links. A file is read whole
// and checked before it is used. One that is not fit is refused, which changes
// nothing else: where the name had a profile before, that stays until the file
// vanishes. So is one of a name as FileNameOf returns with another digest, one
// that would make more than max_bytes, and one more than kMaxProfiles. Of names
// that a profile can have twice as many are kept in mind, and as many others;
// those beyond, the last by name, are counted and reported.
//
// A profile that is no longer in the directory stays in memory until the last
// call that uses it has ended. Thread safe.
class ProfileDirectory final : public ProfileSource {
 public:
  // FAILED_PRECONDITION, naming it, when the directory cannot be read. Files
  // that are refused are no error.
  static absl::StatusOr<std::unique_ptr<ProfileDirectory>> Start(
      ProfileDirectoryOptions options, ProfileEvents events);

  // Reads the directory once. The errors of Start, of the first file that is
  // refused, and of files that are left out.
  static absl::Status Check(const ProfileDirectoryOptions& options);

  std::shared_ptr<const ProfileSet> current() const override;
  uint64_t max_bytes() const override { return options_.max_bytes; }

 private:
  // What is known of a file.
  struct File {
    FileStamp stamp;  // of what was read, or refused, last
    std::shared_ptr<const Profile> profile;  // null where none was good
    absl::Status refused;  // OK, or why the file is not fit as it is
    bool waits = false;    // to be read again though it has not changed
  };

  // A line of the log.
  struct News {
    std::string text;
    bool refusal = false;
  };

  ProfileDirectory(ProfileDirectoryOptions options, ProfileEvents events);

  // Reads what has changed. An error is one of the directory.
  absl::Status Look();
  // Looks, and says in the log what is wrong with the directory, once.
  void Watch();
  // Reads a file unless it is as it was; whether anything changed.
  bool Update(const std::string& name, const std::string& path);
  absl::StatusOr<std::shared_ptr<const Profile>> Load(const std::string& name,
                                                      const std::string& path,
                                                      FileStamp* stamp,
                                                      bool* waits);
  // Bytes of profiles that are loaded, or still in use.
  uint64_t Held();
  void Retire(std::shared_ptr<const Profile> profile);
  // Publishes files_ to calls, then reports the changes: they hold for whoever
  // reads of them in the log.
  void Publish();

  const ProfileDirectoryOptions options_;
  const ProfileEvents events_;
  // Of the thread that looks alone.
  std::map<std::string, File> files_;  // by name
  size_t left_out_ = 0;                // files that are not in files_
  std::vector<std::weak_ptr<const Profile>> retired_;
  std::vector<News> news_;
  std::string complaint_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ProfileSet> current_;  // guarded by the mutex
  std::optional<Periodic> watch_;              // last: it uses the others
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_PROFILE_DIRECTORY_H_
