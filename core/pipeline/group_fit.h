// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which groups of which profile a cache has. Pure functions. Internal to the
// library.

#ifndef KVCOMPRESS_PIPELINE_GROUP_FIT_H_
#define KVCOMPRESS_PIPELINE_GROUP_FIT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/artefact.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/profile.h"
#include "kvcompress/warning.h"
#include "profile/group_format.h"

namespace kvcompress {

// A group of a profile, all of whose tensors a file has.
struct TensorGroup {
  size_t index = 0;             // in the profile
  std::vector<size_t> members;  // indices of tensors, in the profile's order
  size_t first = 0;             // in the order of the file
  size_t last = 0;
  profile::GroupShape shape;
};

// Where the first tensor of each role and layer is.
using TensorPlaces = std::map<std::pair<TensorRole, uint32_t>, size_t>;

// Those of the tensors that `may_take` allows.
TensorPlaces PlacesOf(
    absl::Span<const ArtefactTensor> tensors,
    const std::function<bool(const ArtefactTensor&)>& may_take);

// The groups of a profile all of whose tensors are at `places`; with `exact`
// those of lossless-profile, of types that it takes. In the order of the
// profile.
std::vector<TensorGroup> FindGroups(const ProfileContent& content,
                                    absl::Span<const ArtefactTensor> tensors,
                                    const TensorPlaces& places, bool exact);

// A profile for a cache, the preset of it that is wanted, and the groups of it
// that the cache has: at least one.
struct FittingProfile {
  std::shared_ptr<const Profile> profile;  // null for none
  size_t preset = 0;
  std::vector<TensorGroup> groups;
};

// The codec string of a request: `klt` alone stands, with a profile that has no
// `contract`, for the preset of it with the smallest step. `lossless` takes the
// same preset.
std::string CodecOf(const CompressOptions& options);

// The profile that CompressOptions says, for these tensors. INVALID_ARGUMENT
// where CompressOptions::profile does not go together with the codec or other
// options (INVALID_OPTIONS), lacks the preset (UNKNOWN_PRESET), or has no group
// that fits (PROFILE_MISMATCH). Candidates that do not are passed over; a
// warning is added where several do.
absl::StatusOr<FittingProfile> ChooseProfile(const CompressOptions& options,
                                             const CodecSpec& codec,
                                             const ArtefactHeader& header,
                                             std::vector<Warning>* warnings);

// A warning where tensors of so many values take far more bytes with a preset
// than it expects. REQUIRES: preset.expected.
std::optional<Warning> UnusualRate(const ProfilePreset& preset, uint64_t values,
                                   uint64_t bytes);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_GROUP_FIT_H_
