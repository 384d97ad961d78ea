// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A group of which every bit is kept. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_GROUP_EXACT_H_
#define KVCOMPRESS_PIPELINE_GROUP_EXACT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_encoder.h"
#include "profile/group_format.h"
#include "tensor/workers.h"

namespace kvcompress {

// The elements of each tensor of a group, in the order of the profile.
struct ExactMembers {
  std::vector<absl::string_view> lossy;  // all finite: what is predicted from
  std::vector<absl::string_view> exact;
};

// Writes the payload of a group to `*payload`: what the profile keeps, and the
// residuals that make up for what it loses. `workers`, which may be null, share
// blocks and tensors, which does not show in the payload. The error of the
// checkpoint, which may be null.
absl::Status EncodeExactly(const std::shared_ptr<const Profile>& profile,
                           const profile::GroupEncoding& encoding,
                           profile::GroupShape shape,
                           const ExactMembers& members, Workers* workers,
                           Checkpoint* checkpoint, std::string* payload);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_GROUP_EXACT_H_
