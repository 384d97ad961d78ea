// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The preset `contract` of a profile: every tensor of a group within bounds.
// Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_GROUP_CONTRACT_H_
#define KVCOMPRESS_PIPELINE_GROUP_CONTRACT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/metrics.h"
#include "kvcompress/profile.h"
#include "kvcompress/tensor.h"
#include "profile/group_encoder.h"
#include "profile/group_format.h"
#include "tensor/workers.h"

namespace kvcompress {

// Of each tensor of a group, in the order of the profile.
struct ContractMembers {
  std::vector<TensorSpec> specs;
  std::vector<absl::string_view> sources;  // the elements, all finite
  std::vector<QualityThresholds> thresholds;
};

// Writes the payload of a group to `*payload`. The unit of its tensors is
// corrected by what a few trials lose; elements that are too far off after
// these become exceptions, so that all bounds hold. False where that takes more
// than twice the bytes of the tensors, and 64 KiB: it ends as soon as that is
// known.
// `workers`, which may be null, share blocks and tensors, which does not show
// in the payload. The error of the checkpoint, which may be null.
absl::StatusOr<bool> EncodeWithinBounds(
    std::shared_ptr<const Profile> profile, profile::GroupEncoding encoding,
    const profile::GroupShape& shape, const ContractMembers& members,
    Workers* workers, Checkpoint* checkpoint, std::string* payload);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_GROUP_CONTRACT_H_
