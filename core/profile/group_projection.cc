// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_projection.h"

#include <algorithm>

#include "profile/prepared_basis.h"
#include "profile/projector.h"

namespace kvcompress::profile {

GroupProjection::GroupProjection(const std::shared_ptr<const Profile>& profile,
                                 size_t group, const GroupShape& shape,
                                 absl::Span<const absl::string_view> sources,
                                 uint64_t first_position,
                                 Checkpoint* checkpoint)
    : tokens_(shape.tokens),
      count_(profile->content().groups[group].components),
      components_(shape.batches * tokens_ * count_) {
  const ProfileGroup& basis = profile->content().groups[group];
  TokenGatherer gatherer(profile->content(), group, shape, sources,
                         first_position, checkpoint);
  Projector projector(basis, PreparedBasisOf(profile, group, checkpoint),
                      checkpoint);
  std::vector<float> values(kTokensAtOnce * basis.channels());
  float* to = components_.data();
  for (uint64_t batch = 0; batch < shape.batches; ++batch) {
    for (uint64_t t = 0; t < tokens_; t += kTokensAtOnce) {
      const size_t some = std::min<uint64_t>(kTokensAtOnce, tokens_ - t);
      gatherer.Gather(batch, t, some, values.data());
      projector.Project(some, values.data(), to);
      if (Stops(checkpoint)) return;
      to += some * count_;
    }
  }
}

}  // namespace kvcompress::profile
