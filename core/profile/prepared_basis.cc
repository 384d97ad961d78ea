// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/prepared_basis.h"

#include <map>
#include <mutex>

#include "kernels/kernels.h"

namespace kvcompress::profile {
namespace {

// The bases of the profiles that are in use.
class Cache {
 public:
  std::shared_ptr<const PreparedBasis> Get(
      const std::shared_ptr<const Profile>& profile, size_t group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(bases_,
                  [](const auto& each) { return each.second.owner.expired(); });
    Bases& bases = bases_[profile.get()];
    if (bases.kernels != &kernels::Active()) {
      bases = {profile, &kernels::Active(),
               std::vector<std::shared_ptr<const PreparedBasis>>(
                   profile->content().groups.size())};
    }
    std::shared_ptr<const PreparedBasis>& basis = bases.groups[group];
    if (basis == nullptr) {
      basis = std::make_shared<const PreparedBasis>(
          profile->content().groups[group]);
    }
    return basis;
  }

 private:
  struct Bases {
    std::weak_ptr<const Profile> owner;
    const kernels::KernelSet* kernels = nullptr;
    std::vector<std::shared_ptr<const PreparedBasis>> groups;
  };

  std::mutex mutex_;
  std::map<const Profile*, Bases> bases_;
};

}  // namespace

PreparedBasis::PreparedBasis(const ProfileGroup& group)
    : inner_(group.channels() + group.channels() % 2),
      right_(inner_ * group.components) {
  const size_t channels = group.channels();
  const std::vector<int16_t>& matrix =
      group.encode.empty() ? group.decode : group.encode;
  std::vector<int16_t> pairs(right_.size());
  for (size_t j = 0; j < group.components; ++j) {
    for (size_t i = 0; i < channels; ++i) {
      pairs[(i / 2 * group.components + j) * 2 + i % 2] =
          matrix[j * channels + i];
    }
  }
  kernels::Active().product.prepare(pairs.data(), inner_, group.components,
                                    right_.data());
}

std::shared_ptr<const PreparedBasis> PreparedBasisOf(
    const std::shared_ptr<const Profile>& profile, size_t group) {
  static auto* const cache = new Cache;
  return cache->Get(profile, group);
}

}  // namespace kvcompress::profile
