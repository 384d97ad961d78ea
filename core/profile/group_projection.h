// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// All tokens of a group in the components of its profile, for encoders that
// quantize them more than once. For encoders only. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_GROUP_PROJECTION_H_
#define KVCOMPRESS_PROFILE_GROUP_PROJECTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_format.h"
#include "tensor/workers.h"

namespace kvcompress::profile {

// Immutable.
class GroupProjection {
 public:
  // `sources` has the elements of each tensor, all finite. `workers`, which may
  // be null, share the tokens. Anything when the checkpoint, which may be null,
  // stops.
  GroupProjection(const std::shared_ptr<const Profile>& profile, size_t group,
                  const GroupShape& shape,
                  absl::Span<const absl::string_view> sources,
                  uint64_t first_position, Workers* workers,
                  Checkpoint* checkpoint);

  // What one of such a group takes, in bytes.
  static uint64_t Memory(const ProfileGroup& group, const GroupShape& shape) {
    return shape.batches * shape.tokens * group.components * sizeof(float);
  }

  // The components of a token and of those after it in its batch.
  const float* At(uint64_t batch, uint64_t token) const {
    return &components_[(batch * tokens_ + token) * count_];
  }

 private:
  const uint64_t tokens_;
  const size_t count_;  // of components
  std::vector<float> components_;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_GROUP_PROJECTION_H_
