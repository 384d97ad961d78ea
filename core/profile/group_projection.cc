// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_projection.h"

#include <algorithm>

#include "profile/prepared_basis.h"
#include "profile/projector.h"

namespace kvcompress::profile {

GroupProjection::GroupProjection(const std::shared_ptr<const Profile>& profile,
                                 size_t group, const GroupShape& shape,
                                 absl::Span<const absl::string_view> sources,
                                 uint64_t first_position, Workers* workers,
                                 Checkpoint* checkpoint)
    : tokens_(shape.tokens),
      count_(profile->content().groups[group].components),
      components_(shape.batches * tokens_ * count_) {
  const auto basis = PreparedBasisOf(profile, group, checkpoint);
  const auto make = [&](Checkpoint* of) {
    return std::make_unique<GroupProjector>(profile->content(), group, shape,
                                            sources, first_position, basis, of);
  };
  const auto own = make(checkpoint);
  AtPlaces<GroupProjector> projectors(workers, own.get(), checkpoint, make);
  const size_t at_once = own->TokensAtOnce();
  const size_t in_batch = (tokens_ + at_once - 1) / at_once;
  ForEach(workers, shape.batches * in_batch, [&](size_t i, size_t place) {
    const uint64_t batch = i / in_batch;
    const uint64_t first = i % in_batch * at_once;
    projectors[place].Project(batch, first,
                              std::min<uint64_t>(at_once, tokens_ - first),
                              &components_[(batch * tokens_ + first) * count_]);
  });
}

}  // namespace kvcompress::profile
