// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the encoding of groups takes: room in the header, and memory.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "digest/digest.h"
#include "pipeline/groups.h"
#include "pipeline/tensor_table.h"
#include "profile/block_encoder.h"
#include "profile/codec.h"
#include "profile/group_projection.h"

namespace kvcompress {

uint64_t GroupCompression::HeaderGrowth() const {
  if (!falls_back_) return 0;
  const uint64_t own =
      ProfileCodecSpec(codec(), profile_->content().presets[preset_].name)
          .ManifestField()
          .size();
  const uint64_t other =
      alone_codec_.codec->MaxFieldSize(alone_codec_.parameters);
  // A view may also have its codec named after one that fell back.
  return group_of_.size() * std::max(other, own);
}

uint64_t GroupCompression::HeaderSavings() const {
  if (falls_back_) return 0;
  uint64_t savings = 0;
  for (const TensorGroup& group : groups_) {
    for (const size_t member : group.members) {
      if (member == group.last) continue;
      const uint64_t largest =
          profile::GroupPayloadBound(ElementCount(specs_[member]).value_or(0));
      // Its size is 0, and its digest is left out.
      savings += absl::StrCat(largest).size() - 1 + kDigestDigits - 1;
    }
  }
  return savings;
}

uint64_t GroupCompression::memory(bool reconstruct, size_t places) const {
  uint64_t held = 0;
  uint64_t most = 0;
  uint64_t kept = 0;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const bool keeps = reconstruct || falls_back_;
    if (keeps && !groups_.empty()) kept += BytesOf(specs_[i]);
    if (!Has(i)) continue;
    held += BytesOf(specs_[i]);
    const TensorGroup& group = groups_[group_of_.at(i)];
    if (group.last != i) continue;
    const ProfileGroup& basis = profile_->content().groups[group.index];
    uint64_t largest = 0;
    for (const size_t member : group.members) {
      largest = std::max(largest, BytesOf(specs_[member]));
    }
    const bool verifies =
        exact_ || profile_->content().presets[preset_].name == kContractPreset;
    // Prepared matrices, quanta twice, and the payload. At each place a block,
    // and what a member decodes to, with exceptions again.
    uint64_t working = 8 * basis.channels() * basis.components +
                       2 * profile::GroupQuanta::MaxMemory(basis, group.shape) +
                       places * (profile::BlockEncoder::MaxMemory(basis) +
                                 (verifies ? 4 : 2) * largest);
    // Exceptions or residuals, and the components.
    if (verifies) working += held;
    if (!exact_ && (verifies || effort_ == Effort::kBest)) {
      working += profile::GroupProjection::Memory(basis, group.shape);
    }
    if (falls_back_)
      working +=
          2 * held + alone_codec_.codec->traits().tensor_memory * largest;
    most = std::max(most, held + working);
    for (const size_t member : group.members) held -= BytesOf(specs_[member]);
  }
  return most + kept;
}

}  // namespace kvcompress
