// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which tokens of a group are sinks: tokens that attract attention whatever
// they are. They are unlike all others, and a small error of their keys moves
// the attention of all tokens behind them. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_GROUP_SINKS_H_
#define KVCOMPRESS_PROFILE_GROUP_SINKS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_format.h"
#include "tensor/workers.h"

namespace kvcompress::profile {

// The tokens of a batch, rising, that are sinks in any batch: their values are
// short in most layers (Guo et al., Active-Dormant Attention Heads, 2024),
// about a fifth of the usual length. None of short caches. Beside the first
// token they are line ends and the like (Sun et al., Massive Activations in
// Large Language Models, 2024). `sources` has the elements of each tensor, all
// finite. The workers, which may be null, share the work. Anything when the
// checkpoint, which may be null, stops.
std::vector<uint64_t> FindSinks(const ProfileGroup& group,
                                const GroupShape& shape,
                                absl::Span<const absl::string_view> sources,
                                Workers* workers, Checkpoint* checkpoint);

// Makes steps of these tokens finer, as GroupEncoding::offsets has them; for so
// many tokens, where `*offsets` may be none.
void RefineSinks(absl::Span<const uint64_t> sinks, uint64_t tokens,
                 std::vector<int8_t>* offsets);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_GROUP_SINKS_H_
