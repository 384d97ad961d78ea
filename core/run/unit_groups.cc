// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The units of UnitEncoder that are members of a group of a profile.

#include <functional>
#include <utility>
#include <vector>

#include "digest/digest.h"
#include "run/unit_encoder.h"
#include "status/macros.h"
#include "tensor/slabs.h"

namespace kvcompress {

absl::Status UnitEncoder::StartMember(EncodeJob::Read read) {
  EncodeHints hints = hints_;
  hints.buffers = nullptr;  // other members are read meanwhile
  KVC_ASSIGN_OR_RETURN(std::unique_ptr<TensorEncoder> encoder,
                       groups_.NewEncoder(index_, current().spec, hints));
  member_ = std::make_shared<ReadJob>(std::move(encoder), size_,
                                      std::move(read), std::move(sample_),
                                      limits_.still_wanted, &queue_);
  return absl::OkStatus();
}

// Reads the member under way by a job, and encodes its group if it is the last.
absl::Status UnitEncoder::SubmitMember(CompressOutput* output) {
  const bool last = groups_.IsLast(index_++);
  queue_.Add(member_);
  members_.push_back(std::exchange(member_, nullptr));
  return last ? SettleMembers(output) : absl::OkStatus();
}

// Ends the members that jobs have read, which are the units before the next.
absl::Status UnitEncoder::SettleMembers(CompressOutput* output) {
  for (index_ -= members_.size(); !members_.empty(); members_.pop_front()) {
    const std::shared_ptr<ReadJob>& job = members_.front();
    KVC_RETURN_IF_ERROR(WaitFor(job, &queue_, hints_.checkpoint));
    sample_ = job->TakeSample();
    encoding_.emplace(current().spec, job->TakeEncoder(), /*measures=*/false,
                      hints_.checkpoint);
    KVC_RETURN_IF_ERROR(FinishInline(output));
  }
  return absl::OkStatus();
}

// Measures the group that ends with the unit under way, if one does.
absl::Status UnitEncoder::EndGroup(CompressOutput* output) {
  std::vector<GroupCompression::Outcome> outcomes;
  const auto take = [&](size_t tensor, absl::string_view bytes) {
    ordered_.For(tensor, &output->reconstructed)
        ->append(bytes.data(), bytes.size());
    ordered_.End(tensor, &output->reconstructed);
  };
  KVC_RETURN_IF_ERROR(groups_.TakeOutcomes(
      index_, &queue_, hints_.checkpoint,
      options_.reconstruct ? take
                           : std::function<void(size_t, absl::string_view)>(),
      &outcomes));
  if (!outcomes.empty()) groups_.TellOfPosition(&builder_.report());
  for (GroupCompression::Outcome& outcome : outcomes) {
    if (outcome.alone) {
      TakeAlone(outcome.tensor, *std::move(outcome.alone), output);
    }
    EndPayload(outcome.tensor, output);
    builder_.Settle(outcome.tensor, outcome.quality.distortion,
                    outcome.quality.tokens);
  }
  return absl::OkStatus();
}

// Takes a member of a group that is not coded with the profile after all.
void UnitEncoder::TakeAlone(size_t index, AloneTensor alone,
                            CompressOutput* output) {
  ArtefactTensor& tensor = artefact_.tensors[index];
  tensor.codec = std::move(alone.codec);
  CountPayload(alone.payload.size(), &tensor);
  Digest digest;
  digest.Update(alone.payload);
  tensor.digest = digest.Hex();
  AppendInSlabs(hints_.checkpoint, &alone.payload, PayloadOf(index, output));
  TensorReport& report = builder_.report().tensors[index];
  report.codec = tensor.codec.ToString();
  report.compressed_size = tensor.payload_size;
  report.digest = tensor.digest;
  report.profile_group.reset();
  if (alone.not_finite) builder_.CountNotFinite(tensor.spec.name);
  if (--builder_.report().profile->tensors > 0) return;
  builder_.report().profile.reset();
  artefact_.profile.reset();
}

}  // namespace kvcompress
