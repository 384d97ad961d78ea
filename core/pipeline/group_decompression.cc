// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "pipeline/groups.h"
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
  plan.groups_ = FindGroups(plan.profile_->content(), header.tensors,
                            [](const ArtefactTensor& tensor) {
                              return tensor.codec.codec->coded_in_groups();
                            });
  uint64_t payloads = 0;
  for (size_t g = 0; g < plan.groups_.size(); ++g) {
    const TensorGroup& group = plan.groups_[g];
    for (const size_t tensor : group.members) plan.group_of_[tensor] = g;
    plan.memory_ += profile::GroupQuanta::MaxMemory(
        plan.profile_->content().groups[group.index], group.shape);
  }
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const ArtefactTensor& tensor = header.tensors[i];
    payloads += tensor.payload_size;
    if (!tensor.codec.codec->coded_in_groups()) continue;
    if (!plan.Has(i)) {
      return Damaged("its tensors do not make up the groups of its profile",
                     tensor.spec.name);
    }
    if (plan.NeededUpTo(i) != i && tensor.payload_size != 0) {
      return Damaged("a payload where none belongs", tensor.spec.name);
    }
  }
  plan.memory_ += 2 * payloads;
  return plan;
}

absl::Status GroupDecompression::Prepare(size_t tensor,
                                         absl::string_view payload,
                                         Checkpoint* checkpoint) {
  const size_t index = group_of_.at(tensor);
  if (quanta_.count(index) != 0) return absl::OkStatus();
  const TensorGroup& group = groups_[index];
  KVC_ASSIGN_OR_RETURN(
      std::shared_ptr<const profile::GroupQuanta> quanta,
      profile::GroupQuanta::Parse(payload, profile_, group.index, group.shape,
                                  checkpoint));
  quanta_[index] = std::move(quanta);
  return absl::OkStatus();
}

std::unique_ptr<TensorDecoder> GroupDecompression::NewDecoder(
    size_t tensor, Checkpoint* checkpoint) {
  const size_t index = group_of_.at(tensor);
  const std::vector<size_t>& members = groups_[index].members;
  const auto place = std::find(members.begin(), members.end(), tensor);
  return NewMemberDecoder(quanta_.at(index),
                          static_cast<size_t>(place - members.begin()),
                          checkpoint);
}

void GroupDecompression::End(size_t tensor) {
  const auto group = group_of_.find(tensor);
  if (group == group_of_.end()) return;
  if (groups_[group->second].last == tensor) quanta_.erase(group->second);
}

}  // namespace kvcompress
