// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The encoder's matrix of a group, in the order of products. The encoder's
// affair. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_PREPARED_BASIS_H_
#define KVCOMPRESS_PROFILE_PREPARED_BASIS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "transform/basis.h"

namespace kvcompress::profile {

// Components that are projected to at once: a panel of them stays in a cache
// while tokens pass by.
inline constexpr size_t kPanel = 32;
// Tokens that should pass by one after the other, so that these stay there too.
// Such a product takes a few milliseconds at most.
inline constexpr size_t kTokensAtOnce = 64;

// Immutable.
class PreparedBasis {
 public:
  // Asks the checkpoint, which may be null, every few milliseconds: when it
  // stops, the matrix may be anything.
  PreparedBasis(const ProfileGroup& group, Checkpoint* checkpoint);

  // Rows of the matrix: the channels, made even.
  size_t inner() const { return inner_; }
  // The panel of kPanel components that begins with one, its rows in pairs;
  // those that there are not are zeros.
  const int16_t* Panel(size_t begin) const { return &right_[begin * inner_]; }

 private:
  const size_t inner_;
  coding::Lines right_;  // panel after panel
};

// That of a group of a profile: made when it is first asked for, and kept as
// long as the profile, or a little longer. Thread safe. As the constructor has
// it when the checkpoint, which may be null, stops; then it is not kept.
std::shared_ptr<const PreparedBasis> PreparedBasisOf(
    const std::shared_ptr<const Profile>& profile, size_t group,
    Checkpoint* checkpoint);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_PREPARED_BASIS_H_
