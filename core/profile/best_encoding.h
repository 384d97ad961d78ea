// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A group encoded at effort best. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_BEST_ENCODING_H_
#define KVCOMPRESS_PROFILE_BEST_ENCODING_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_encoder.h"
#include "profile/group_format.h"
#include "profile/group_projection.h"
#include "tensor/workers.h"

namespace kvcompress::profile {

// As EncodeGroup, with a trellis whose errors are those without one, if that is
// smaller and steps are fine enough for it. REQUIRES: neither a trellis nor
// units are set.
void EncodeGroupBest(const std::shared_ptr<const Profile>& profile,
                     GroupEncoding encoding, const GroupShape& shape,
                     absl::Span<const absl::string_view> sources,
                     Workers* workers, Checkpoint* checkpoint,
                     std::string* payload, const GroupProjection& projection);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_BEST_ENCODING_H_
