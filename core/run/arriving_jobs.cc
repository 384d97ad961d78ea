// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "run/arriving_jobs.h"

#include <string>
#include <utility>

namespace kvcompress {

void ArrivingJobs::Begin(bool turns) {
  turns_ = turns;
  if (!turns) return;
  came_.resize(order_.size());
  for (const size_t tensor : order_) {
    if (plan_.groups.Has(tensor)) ++members_left_[plan_.groups.GroupOf(tensor)];
  }
}

void ArrivingJobs::AddDue() {
  while (added_ < came_.size() && !jobs_.is_full()) {
    const size_t tensor = order_[added_];
    if (plan_.NeededFor(tensor) >= next_) return;
    std::shared_ptr<DecodeJob> job = std::move(came_[tensor]);
    if (plan_.groups.Has(tensor)) JoinGroup(tensor, job.get());
    jobs_.Add(std::move(job));
    ++added_;
  }
}

bool ArrivingJobs::Take(absl::string_view* bytes, uint64_t* position) {
  if (job_ == nullptr) {
    job_ = std::make_shared<DecodeJob>(
        plan_.header.tensors[next_], *position, UseOf(next_), plan_.tokens,
        still_wanted_, &jobs_.spares(), &jobs_.queue());
  }
  const absl::string_view part = bytes->substr(0, missing());
  bytes->remove_prefix(part.size());
  *position += part.size();
  if (job_->Append(part) > 0) return false;
  if (turns_) {
    Keep(next_);
  } else {
    jobs_.Add(std::exchange(job_, nullptr));
  }
  ++next_;
  return true;
}

uint64_t ArrivingJobs::missing() const {
  const uint64_t size = plan_.header.tensors[next_].payload_size;
  return job_ == nullptr ? size : size - job_->payload().size();
}

DecodeJob::Use ArrivingJobs::UseOf(size_t tensor) const {
  if (plan_.selected[tensor]) {
    return plan_.header.laid_out.empty() ? DecodeJob::Use::kGiveBack
                                         : DecodeJob::Use::kGiveWhole;
  }
  return plan_.verify_only ? DecodeJob::Use::kCheck : DecodeJob::Use::kSkip;
}

// A payload has come, whose tensor has a turn. Begins to read its group, where
// it is the last of one of which anything is needed.
void ArrivingJobs::Keep(size_t tensor) {
  came_[tensor] = std::exchange(job_, nullptr);
  if (!plan_.groups.Has(tensor)) return;
  const size_t group = plan_.groups.GroupOf(tensor);
  if (plan_.groups.LastOf(group) != tensor) return;
  if (!plan_.Needs(group)) return;
  auto job = std::make_shared<GroupJob>(
      &plan_.groups, group,
      [payload = came_[tensor]->payload()](std::string*) { return payload; },
      still_wanted_, &jobs_.queue(), jobs_.threads());
  // Also where it is skipped: what is read is its payload.
  came_[tensor]->RunAfter(job);
  jobs_.queue().Add(job);
  group_jobs_[group] = std::move(job);
}

// Decodes a member by its group, which is forgotten with its last one.
void ArrivingJobs::JoinGroup(size_t tensor, DecodeJob* job) {
  const size_t group = plan_.groups.GroupOf(tensor);
  const auto found = group_jobs_.find(group);
  if (found == group_jobs_.end()) return;
  if (UseOf(tensor) != DecodeJob::Use::kSkip) {
    job->DecodeBy(found->second, tensor);
  }
  if (--members_left_[group] == 0) group_jobs_.erase(found);
}

}  // namespace kvcompress
