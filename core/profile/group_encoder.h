// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes the tensors of a group to its payload (core/FORMAT.md,
// "klt-profile"). Internal to the library.

#ifndef KVCOMPRESS_PROFILE_GROUP_ENCODER_H_
#define KVCOMPRESS_PROFILE_GROUP_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_format.h"
#include "profile/group_projection.h"
#include "tensor/workers.h"

namespace kvcompress::profile {

struct GroupEncoding {
  size_t group = 0;   // of the profile
  size_t preset = 0;  // of the profile
  uint64_t first_position = 0;
  uint32_t block_tokens = kMaxBlockTokens;  // at least kLeastBlockTokens
  int8_t shift = 0;                         // of the classes
  std::vector<float> units;  // of each tensor, or none where all are 1
  // Of a trellis, which is slower and takes less for the same errors: the
  // squared error, in squared steps, that a bit is worth.
  std::optional<float> error_per_bit;
  // Steps of tokens over that of the preset, in quarter octaves that are finer;
  // one for each token of a batch, or none.
  std::vector<int8_t> offsets;
  // FindSinks, or none: those near the first token are not transformed, as that
  // is not.
  std::vector<uint64_t> sinks;
};

// Adds exceptions to a payload that has none: lists of TakeExceptions, one for
// each tensor of the group. REQUIRES: together they fit 32 bits.
void AddExceptions(absl::Span<const std::string> lists, std::string* payload);

// Adds residuals to a payload that has none: EncodeResiduals of each tensor of
// the group.
void AddResiduals(absl::Span<const std::string> residuals,
                  std::string* payload);

// Appends the payload, which is the same whoever shares the work: `workers`,
// which may be null, do blocks. `sources` has the elements of each tensor, all
// finite. Anything when the checkpoint, which may be null, stops. `projection`
// is that of these sources, for which all units must be equal; or null. With it
// `*squares`, if not null, becomes the sum of the squared errors of components,
// each over the token's step of the preset.
void EncodeGroup(const std::shared_ptr<const Profile>& profile,
                 const GroupEncoding& encoding, const GroupShape& shape,
                 absl::Span<const absl::string_view> sources, Workers* workers,
                 Checkpoint* checkpoint, std::string* payload,
                 const GroupProjection* projection = nullptr,
                 double* squares = nullptr);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_GROUP_ENCODER_H_
