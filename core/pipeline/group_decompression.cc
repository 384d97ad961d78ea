// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "pipeline/group_members.h"
#include "pipeline/groups.h"
#include "profile/block_reader.h"
#include "profile/codec.h"
#include "profile/member_restorer.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

absl::Status Damaged(absl::string_view what, const std::string& tensor) {
  return MakeError(absl::StatusCode::kDataLoss,
                   absl::StrCat("the artefact is damaged: ", what),
                   {.reason = "PAYLOAD_DAMAGED", .tensor = tensor});
}

}  // namespace

absl::StatusOr<GroupDecompression> GroupDecompression::Plan(
    absl::Span<const std::shared_ptr<const Profile>> profiles,
    const ArtefactHeader& header) {
  GroupDecompression plan;
  if (!header.profile) return plan;
  for (const std::shared_ptr<const Profile>& profile : profiles) {
    if (profile->id().digest == header.profile->digest) plan.profile_ = profile;
  }
  if (plan.profile_ == nullptr) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("the artefact needs the profile ", header.profile->digest,
                     " for ", QuoteName(header.profile->label),
                     ", which is not here: give its file with -profile, or put "
                     "it into the server's --profile-directory"),
        {.reason = "PROFILE_MISSING", .profile = header.profile->digest});
  }
  for (const Codec* codec : {&KltProfileCodec(), &LosslessProfileCodec()}) {
    const TensorPlaces places =
        PlacesOf(header.tensors, [codec](const ArtefactTensor& tensor) {
          return tensor.codec.codec == codec;
        });
    const std::vector<TensorGroup> groups =
        FindGroups(plan.profile_->content(), header.tensors, places,
                   codec == &LosslessProfileCodec());
    plan.groups_.insert(plan.groups_.end(), groups.begin(), groups.end());
  }
  for (size_t g = 0; g < plan.groups_.size(); ++g) {
    const TensorGroup& group = plan.groups_[g];
    for (const size_t tensor : group.members) plan.group_of_[tensor] = g;
    plan.memory_ += profile::GroupQuanta::MaxMemory(
        plan.profile_->content().groups[group.index], group.shape);
    plan.memory_of_reader_ =
        std::max(plan.memory_of_reader_,
                 profile::BlockReader::Memory(
                     plan.profile_->content().groups[group.index].components));
  }
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const ArtefactTensor& tensor = header.tensors[i];
    plan.names_.push_back(tensor.spec.name);
    if (!tensor.codec.codec->coded_in_groups()) continue;
    if (!plan.Has(i)) {
      return Damaged("its tensors do not make up the groups of its profile",
                     tensor.spec.name);
    }
    if (plan.LastOf(plan.GroupOf(i)) != i && tensor.payload_size != 0) {
      return Damaged("a payload where none belongs", tensor.spec.name);
    }
  }
  return plan;
}

size_t GroupDecompression::PlaceOf(size_t tensor) const {
  const std::vector<size_t>& members = groups_[GroupOf(tensor)].members;
  const auto place = std::find(members.begin(), members.end(), tensor);
  return static_cast<size_t>(place - members.begin());
}

uint64_t GroupDecompression::MemoryOfDecoder(size_t tensor) const {
  const TensorGroup& group = groups_[GroupOf(tensor)];
  return profile::MemberRestorer::Memory(
      profile_->content().groups[group.index], PlaceOf(tensor), group.shape);
}

absl::StatusOr<std::shared_ptr<const profile::GroupQuanta>>
GroupDecompression::Parse(size_t group, absl::string_view payload,
                          Checkpoint* checkpoint, Workers* workers) const {
  absl::StatusOr<std::shared_ptr<const profile::GroupQuanta>> quanta =
      profile::GroupQuanta::Parse(payload, profile_, groups_[group].index,
                                  groups_[group].shape, checkpoint, workers);
  if (quanta.ok()) return quanta;
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  return MakeError(
      absl::StatusCode::kDataLoss, quanta.status().message(),
      {.reason = "PAYLOAD_DAMAGED", .tensor = names_[LastOf(group)]});
}

std::unique_ptr<TensorDecoder> GroupDecompression::NewDecoder(
    size_t tensor, std::shared_ptr<const profile::GroupQuanta> quanta,
    Checkpoint* checkpoint) const {
  return NewMemberDecoder(std::move(quanta), PlaceOf(tensor), names_[tensor],
                          checkpoint);
}

}  // namespace kvcompress
