// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile_directory.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kEnding = ".profile";
constexpr size_t kMaxName = 80;
constexpr char kDigestName[] = "sha256-";
// Most files that are kept in mind, of those whose names a profile can have and
// of the others.
constexpr size_t kMaxFiles = 2 * kMaxProfiles;

absl::Status Refuse(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, why,
                   {.reason = "PROFILE_REFUSED"});
}

absl::Status CheckName(absl::string_view name) {
  const bool fits = !name.empty() && name.size() <= kMaxName &&
                    absl::ascii_isalnum(name[0]) &&
                    std::all_of(name.begin(), name.end(),
                                [](char c) {
                                  return absl::ascii_isalnum(c) || c == '.' ||
                                         c == '_' || c == '-';
                                }) &&
                    name != kNoProfile;
  return fits ? absl::OkStatus()
              : Refuse(absl::StrCat(
                    "the name of a profile is 1 to ", kMaxName,
                    " letters, digits, '.', '_' and '-', begins with a letter "
                    "or a digit, and is not \"none\""));
}

using Paths = std::map<std::string, std::string>;  // by name

struct Listing {
  Paths paths;
  size_t left_out = 0;  // names that a profile can have, beyond kMaxFiles
};

// Takes the last of more than kMaxFiles away, other than those that `is_known`
// says yes to; whether it did.
template <typename IsKnown>
bool TakeOneAway(IsKnown is_known, Paths* paths) {
  if (paths->size() <= kMaxFiles) return false;
  const auto last =
      std::find_if(paths->rbegin(), paths->rend(),
                   [&](const auto& each) { return !is_known(each.first); });
  if (last == paths->rend()) return false;
  paths->erase(std::prev(last.base()));
  return true;
}

// The files that count: those that are known, and then the first by name.
// FAILED_PRECONDITION.
template <typename IsKnown>
absl::StatusOr<Listing> List(const std::string& directory, IsKnown is_known) {
  Listing listing;
  Paths unfit;
  std::error_code error;
  fs::directory_iterator each(directory, error);
  for (; !error && each != fs::directory_iterator(); each.increment(error)) {
    const std::string file = each->path().filename().string();
    if (file[0] == '.' || !absl::EndsWith(file, kEnding)) continue;
    const std::string name(absl::StripSuffix(file, kEnding));
    const bool fits = CheckName(name).ok();
    Paths* const paths = fits ? &listing.paths : &unfit;
    paths->emplace(name, each->path().string());
    if (TakeOneAway(is_known, paths) && fits) ++listing.left_out;
  }
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": ", error.message()));
  }
  listing.paths.merge(unfit);
  return listing;
}

std::string LeftOut(size_t files) {
  return absl::StrCat("left out ", files, " more files than the ", kMaxFiles,
                      " that are looked at: take files away");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProfileDirectory>> ProfileDirectory::Start(
    ProfileDirectoryOptions options, ProfileEvents events) {
  const absl::Duration interval = options.interval;
  std::unique_ptr<ProfileDirectory> directory(
      new ProfileDirectory(std::move(options), std::move(events)));
  if (absl::Status status = directory->Look(); !status.ok()) return status;
  directory->Publish();
  directory->watch_.emplace(interval,
                            [raw = directory.get()] { raw->Watch(); });
  return directory;
}

absl::Status ProfileDirectory::Check(const ProfileDirectoryOptions& options) {
  ProfileDirectory directory(options, {});
  if (absl::Status status = directory.Look(); !status.ok()) return status;
  if (directory.left_out_ > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        Printable(options.path), ": ", LeftOut(directory.left_out_)));
  }
  for (const auto& [name, file] : directory.files_) {
    if (file.refused.ok()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(Printable(options.path), ": the profile ", QuoteName(name),
                     ": ", file.refused.message()));
  }
  return absl::OkStatus();
}

ProfileDirectory::ProfileDirectory(ProfileDirectoryOptions options,
                                   ProfileEvents events)
    : options_(std::move(options)),
      events_(std::move(events)),
      current_(std::make_shared<const ProfileSet>()) {}

std::shared_ptr<const ProfileSet> ProfileDirectory::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void ProfileDirectory::Watch() {
  const absl::Status status = Look();
  const std::string complaint(status.message());
  if (!status.ok() && complaint != complaint_) {
    spdlog::error("profiles: {}; keeping those that are loaded",
                  Printable(complaint));
    if (events_.refused) events_.refused();
  }
  complaint_ = complaint;
}

absl::Status ProfileDirectory::Look() {
  const absl::StatusOr<Listing> listed =
      List(options_.path,
           [this](const std::string& name) { return files_.count(name) != 0; });
  if (!listed.ok()) return listed.status();
  bool changed = false;
  for (auto each = files_.begin(); each != files_.end();) {
    if (listed->paths.count(each->first) != 0) {
      ++each;
      continue;
    }
    news_.push_back({absl::StrCat(QuoteName(each->first), " is gone")});
    Retire(std::move(each->second.profile));
    each = files_.erase(each);
    changed = true;
  }
  // Publishing first lets go of what is gone before more is read.
  if (changed) Publish();
  changed = listed->left_out != left_out_;
  if (listed->left_out > left_out_) {
    news_.push_back({LeftOut(listed->left_out), true});
  }
  left_out_ = listed->left_out;
  for (const auto& [name, path] : listed->paths) {
    changed = Update(name, path) || changed;
  }
  if (changed) Publish();
  return absl::OkStatus();
}

bool ProfileDirectory::Update(const std::string& name,
                              const std::string& path) {
  const auto known = files_.find(name);
  const absl::StatusOr<FileStamp> found = StampOf(path);
  FileStamp stamp = found.ok() ? *found : FileStamp();
  const bool unchanged = known != files_.end() && stamp == known->second.stamp;
  if (unchanged && !known->second.waits) return false;
  bool waits = false;
  absl::StatusOr<std::shared_ptr<const Profile>> loaded =
      Load(name, path, &stamp, &waits);
  File& file = files_[name];
  const bool told = unchanged && !file.refused.ok();
  file.stamp = stamp;
  file.waits = waits;
  file.refused = loaded.status();
  if (loaded.ok()) {
    const ProfileId& id = (*loaded)->id();
    if (file.profile == nullptr || file.profile->id().digest != id.digest) {
      news_.push_back({absl::StrCat("loaded ", QuoteName(name), ", ", id.digest,
                                    " for ", QuoteName(id.label))});
    }
    if (file.profile != *loaded) {
      Retire(std::exchange(file.profile, *std::move(loaded)));
    }
    return true;
  }
  if (told) return false;
  news_.push_back(
      {absl::StrCat("refused ", QuoteName(name), ": ",
                    Printable(loaded.status().message()),
                    file.profile == nullptr ? "" : "; keeping the one before"),
       true});
  return true;
}

absl::StatusOr<std::shared_ptr<const Profile>> ProfileDirectory::Load(
    const std::string& name, const std::string& path, FileStamp* stamp,
    bool* waits) {
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  size_t loaded = 0;
  for (const auto& [other, file] : files_) {
    if (other != name && file.profile != nullptr) ++loaded;
  }
  if (loaded >= kMaxProfiles) {
    *waits = true;
    return Refuse(absl::StrCat("there are ", kMaxProfiles,
                               " profiles already, the most that are taken"));
  }
  const uint64_t held = Held();
  const uint64_t room = options_.max_bytes - std::min(options_.max_bytes, held);
  if (static_cast<uint64_t>(stamp->size) > room) {
    *waits = true;
    return Refuse(absl::StrCat(
        "it has ", stamp->size, " bytes, and profiles take ", held,
        " already, of the ", options_.max_bytes,
        " that --max-profile-bytes allows: raise that limit, or take other "
        "profiles away"));
  }
  const absl::StatusOr<std::string> bytes = ReadRegularFile(path, room, stamp);
  if (!bytes.ok()) {
    *waits = true;
    return Refuse(bytes.status().message());
  }
  absl::StatusOr<std::shared_ptr<const Profile>> profile =
      Profile::Parse(*bytes);
  if (!profile.ok()) return profile;
  const std::string& digest = (*profile)->id().digest;
  if (absl::StartsWith(name, kDigestName) && name != FileNameOf(digest)) {
    return MakeError(
        absl::StatusCode::kDataLoss,
        absl::StrCat("its bytes have the digest ", digest,
                     ", not the one that its name says: take another copy"),
        {.reason = "PROFILE_DAMAGED", .profile = digest});
  }
  // One that is here under another name too is held once.
  for (const auto& [other, file] : files_) {
    if (file.profile != nullptr && file.profile->id().digest == digest) {
      return file.profile;
    }
  }
  return profile;
}

uint64_t ProfileDirectory::Held() {
  std::set<std::shared_ptr<const Profile>> held;
  for (const auto& [name, file] : files_) {
    if (file.profile != nullptr) held.insert(file.profile);
  }
  retired_.erase(
      std::remove_if(retired_.begin(), retired_.end(),
                     [](const auto& each) { return each.expired(); }),
      retired_.end());
  for (const std::weak_ptr<const Profile>& each : retired_) {
    if (std::shared_ptr<const Profile> profile = each.lock()) {
      held.insert(std::move(profile));
    }
  }
  uint64_t sum = 0;
  for (const std::shared_ptr<const Profile>& each : held) sum += each->memory();
  return sum;
}

void ProfileDirectory::Retire(std::shared_ptr<const Profile> profile) {
  if (profile != nullptr) retired_.emplace_back(std::move(profile));
}

void ProfileDirectory::Publish() {
  std::vector<LoadedProfile> loaded;
  std::vector<RefusedProfile> refused;
  for (const auto& [name, file] : files_) {
    if (file.profile != nullptr) loaded.push_back({name, file.profile});
    if (!file.refused.ok()) refused.push_back({name, file.refused});
  }
  auto next = std::make_shared<const ProfileSet>(std::move(loaded),
                                                 std::move(refused), left_out_);
  {
    const std::lock_guard lock(mutex_);
    current_ = next;
  }
  if (events_.changed) events_.changed(*next);
  for (const News& each : std::exchange(news_, {})) {
    spdlog::log(each.refusal ? spdlog::level::err : spdlog::level::info,
                "profiles: {}", each.text);
    if (each.refusal && events_.refused) events_.refused();
  }
}

}  // namespace kvcompress
