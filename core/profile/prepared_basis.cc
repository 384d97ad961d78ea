// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/prepared_basis.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace kvcompress::profile {
namespace {

// The bases of the profiles that are in use.
class Cache {
 public:
  std::shared_ptr<const PreparedBasis> Get(
      const std::shared_ptr<const Profile>& profile, size_t group,
      Checkpoint* checkpoint) {
    if (auto basis = Find(profile, group)) return basis;
    // Without the lock, for which no checkpoint is asked.
    auto basis = std::make_shared<const PreparedBasis>(
        profile->content().groups[group], checkpoint);
    if (Stops(checkpoint)) return basis;
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const PreparedBasis>& kept = BasesOf(profile).groups[group];
    if (kept == nullptr) kept = std::move(basis);
    return kept;
  }

 private:
  struct Bases {
    std::weak_ptr<const Profile> owner;
    std::vector<std::shared_ptr<const PreparedBasis>> groups;
  };

  std::shared_ptr<const PreparedBasis> Find(
      const std::shared_ptr<const Profile>& profile, size_t group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(bases_,
                  [](const auto& each) { return each.second.owner.expired(); });
    return BasesOf(profile).groups[group];
  }

  // REQUIRES: the lock is held.
  Bases& BasesOf(const std::shared_ptr<const Profile>& profile) {
    Bases& bases = bases_[profile.get()];
    if (bases.groups.empty()) {
      bases.owner = profile;
      bases.groups.resize(profile->content().groups.size());
    }
    return bases;
  }

  std::mutex mutex_;
  std::map<const Profile*, Bases> bases_;
};

}  // namespace

PreparedBasis::PreparedBasis(const ProfileGroup& group, Checkpoint* checkpoint)
    : inner_(group.channels() + group.channels() % 2),
      right_((group.components + kPanel - 1) / kPanel * kPanel * inner_) {
  const size_t channels = group.channels();
  const std::vector<int16_t>& matrix =
      group.encode.empty() ? group.decode : group.encode;
  for (size_t begin = 0; begin < group.components; begin += kPanel) {
    if (Stops(checkpoint)) return;
    const size_t columns = std::min(kPanel, group.components - begin);
    int16_t* const pairs = &right_[begin * inner_];
    for (size_t j = 0; j < columns; ++j) {
      const int16_t* const row = &matrix[(begin + j) * channels];
      for (size_t i = 0; i < channels; ++i) {
        pairs[(i / 2 * kPanel + j) * 2 + i % 2] = row[i];
      }
    }
  }
}

std::shared_ptr<const PreparedBasis> PreparedBasisOf(
    const std::shared_ptr<const Profile>& profile, size_t group,
    Checkpoint* checkpoint) {
  static auto* const cache = new Cache;
  return cache->Get(profile, group, checkpoint);
}

}  // namespace kvcompress::profile
