// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The encoder's matrix of a group, prepared for products. The encoder's affair.
// Internal to the library.

#ifndef KVCOMPRESS_PROFILE_PREPARED_BASIS_H_
#define KVCOMPRESS_PROFILE_PREPARED_BASIS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcompress/profile.h"

namespace kvcompress::profile {

// Immutable.
class PreparedBasis {
 public:
  // Of the kernels that are active.
  explicit PreparedBasis(const ProfileGroup& group);

  // Rows of the matrix: the channels, made even.
  size_t inner() const { return inner_; }
  const int16_t* right() const { return right_.data(); }

 private:
  const size_t inner_;
  std::vector<int16_t> right_;
};

// That of a group of a profile: made when it is first asked for, and kept as
// long as the profile, or a little longer. Thread safe.
std::shared_ptr<const PreparedBasis> PreparedBasisOf(
    const std::shared_ptr<const Profile>& profile, size_t group);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_PREPARED_BASIS_H_
