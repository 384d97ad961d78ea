// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The profiles that a service has, and how calls find theirs.

#ifndef KVCOMPRESS_SERVER_PROFILE_SET_H_
#define KVCOMPRESS_SERVER_PROFILE_SET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/profile.h"

namespace kvcompress {

// What a request says instead of a profile when it wants none.
inline constexpr absl::string_view kNoProfile = "none";
// The key of the label by which a request says what model its cache is of.
inline constexpr char kModelLabel[] = "model";
// Most profiles that a service has at a time.
inline constexpr size_t kMaxProfiles = 64;

struct LoadedProfile {
  std::string name;  // 1 to 80 of [A-Za-z0-9._-]; unique
  std::shared_ptr<const Profile> profile;
};

struct RefusedProfile {
  std::string name;  // of the file, without the ending
  absl::Status why;  // with an ErrorDetail
};

// The profiles at one moment, by name. Immutable and thread safe.
class ProfileSet {
 public:
  ProfileSet() = default;
  ProfileSet(std::vector<LoadedProfile> loaded,
             std::vector<RefusedProfile> refused, size_t left_out = 0);

  const std::vector<LoadedProfile>& loaded() const { return loaded_; }
  // Files that are there and were not taken, or not taken again after they had
  // changed.
  const std::vector<RefusedProfile>& refused() const { return refused_; }
  // Files that nobody looked at, as there are too many.
  size_t left_out() const { return left_out_; }
  // Memory of the loaded ones, in bytes.
  uint64_t memory() const;

  // The profile of this digest, of this name, or else the one that alone has
  // this label; of several with the label, the one that alone has the preset of
  // the codec string. FAILED_PRECONDITION, PROFILE_UNKNOWN or
  // PROFILE_AMBIGUOUS, where there is none or several; where its file was
  // refused, the error that says why, such as DATA_LOSS, PROFILE_DAMAGED.
  absl::StatusOr<std::shared_ptr<const Profile>> Find(
      absl::string_view text, absl::string_view codec) const;

  // Those with this label, each once.
  std::vector<std::shared_ptr<const Profile>> WithLabel(
      absl::string_view label) const;

  // All, each once.
  std::vector<std::shared_ptr<const Profile>> All() const;

  // `error`, or, where it is PROFILE_MISSING and the file that is named by the
  // digest was refused, why that was, such as DATA_LOSS, PROFILE_DAMAGED.
  absl::Status Explain(const absl::Status& error) const;

 private:
  absl::Status WhyRefused(absl::string_view name) const;

  std::vector<LoadedProfile> loaded_;
  std::vector<RefusedProfile> refused_;
  size_t left_out_ = 0;
};

// Provides the profiles that there are now. Thread safe.
class ProfileSource {
 public:
  virtual ~ProfileSource() = default;

  // Never null.
  virtual std::shared_ptr<const ProfileSet> current() const = 0;
  // Most memory of all of them, in bytes; 0 where there are never others.
  virtual uint64_t max_bytes() const { return 0; }
};

// Always the same ones.
class FixedProfiles final : public ProfileSource {
 public:
  explicit FixedProfiles(std::vector<LoadedProfile> loaded)
      : set_(std::make_shared<const ProfileSet>(
            std::move(loaded), std::vector<RefusedProfile>())) {}

  std::shared_ptr<const ProfileSet> current() const override { return set_; }

 private:
  const std::shared_ptr<const ProfileSet> set_;
};

// The name of a file for a profile with a digest, without the ending:
// "sha256-" and the digits. Files of such names are taken only if they have
// that digest.
std::string FileNameOf(absl::string_view digest);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_PROFILE_SET_H_
