// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Jobs that decode tensors whose payloads come in the order of the artefact.
// Where tensors are given back in another order, or need the payload of a
// group, they wait for their turn. Internal to the library.

#ifndef KVCOMPRESS_RUN_ARRIVING_JOBS_H_
#define KVCOMPRESS_RUN_ARRIVING_JOBS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvcompress/threads.h"
#include "pipeline/decode_jobs.h"
#include "pipeline/tensor_decoding.h"
#include "plan/decompress_plan.h"

namespace kvcompress {

// Not thread safe.
class ArrivingJobs {
 public:
  // All outlive this; `order` has the tensors as they are given back.
  ArrivingJobs(const DecompressPlan& plan, const std::vector<size_t>& order,
               const StillWanted& still_wanted, DecodeJobs* jobs)
      : plan_(plan), order_(order), still_wanted_(still_wanted), jobs_(*jobs) {}

  // Once the plan is made. With `turns`, tensors wait for theirs.
  void Begin(bool turns);

  // Adds the jobs whose turn it is, as far as their payloads have come and they
  // may be at work.
  void AddDue();
  // Takes bytes of payloads from the front of `*bytes`, which are at
  // `*position` of the artefact, up to the end of one. False when that needs
  // more. REQUIRES: not all have come.
  bool Take(absl::string_view* bytes, uint64_t* position);

  // The tensor whose payload comes next, and bytes of it that are missing.
  size_t next() const { return next_; }
  uint64_t missing() const;
  bool all_came() const { return next_ == plan_.header.tensors.size(); }

 private:
  DecodeJob::Use UseOf(size_t tensor) const;
  void Keep(size_t tensor);
  void JoinGroup(size_t tensor, DecodeJob* job);

  const DecompressPlan& plan_;
  const std::vector<size_t>& order_;
  const StillWanted& still_wanted_;
  DecodeJobs& jobs_;
  bool turns_ = false;
  size_t next_ = 0;
  std::shared_ptr<DecodeJob> job_;                // whose payload is coming
  std::vector<std::shared_ptr<DecodeJob>> came_;  // whose turn has not come
  size_t added_ = 0;                              // of order_
  std::map<size_t, size_t> members_left_;  // of groups, before their turn
  std::map<size_t, std::shared_ptr<GroupJob>> group_jobs_;  // by group
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_RUN_ARRIVING_JOBS_H_
