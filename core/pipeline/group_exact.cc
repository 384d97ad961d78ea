// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/group_exact.h"

#include "absl/status/statusor.h"
#include "pipeline/group_members.h"
#include "profile/group_decoder.h"
#include "profile/residuals.h"
#include "status/macros.h"

namespace kvcompress {

absl::Status EncodeExactly(const std::shared_ptr<const Profile>& profile,
                           const profile::GroupEncoding& encoding,
                           profile::GroupShape shape,
                           const ExactMembers& members, Workers* workers,
                           Checkpoint* checkpoint, std::string* payload) {
  shape.exact = false;  // until residuals are added
  profile::EncodeGroup(profile, encoding, shape, members.lossy, workers,
                       checkpoint, payload);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  KVC_ASSIGN_OR_RETURN(
      const std::shared_ptr<const profile::GroupQuanta> quanta,
      QuantaOf(*payload, profile, encoding.group, shape, workers, checkpoint));
  std::vector<std::string> residuals(members.exact.size());
  KVC_RETURN_IF_ERROR(TryForEach(
      workers, residuals.size(), checkpoint, [&](size_t i, Checkpoint* here) {
        KVC_ASSIGN_OR_RETURN(const std::string restored,
                             RestoreMember(quanta, i, here));
        residuals[i] = profile::EncodeResiduals(
            profile::ResidualShapeOf(shape, quanta->group(), i),
            members.exact[i], restored, here);
        return StatusOf(here);
      }));
  profile::AddResiduals(residuals, payload);
  return absl::OkStatus();
}

}  // namespace kvcompress
