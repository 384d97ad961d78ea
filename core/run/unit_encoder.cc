// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "run/unit_encoder.h"

#include <algorithm>

#include "pipeline/hints.h"
#include "pipeline/tensor_table.h"
#include "pipeline/working_memory.h"
#include "status/macros.h"
#include "tensor/slabs.h"

namespace kvcompress {
namespace {

// Bytes of a tensor that is still in a processor's caches when another thread
// takes it.
constexpr uint64_t kCached = 4 << 20;
// Tensors for which there is memory besides those that are encoded or wait: one
// that is coming, and one that is spare. What they become is smaller.
constexpr uint64_t kSpares = 2;

}  // namespace

void UnitEncoder::Begin(CompressPlan plan, bool stream) {
  artefact_ = std::move(plan.artefact);
  groups_ = std::move(plan.groups);
  hints_ = std::move(plan.hints);
  hints_.buffers = &buffers_;
  hints_.workers = &queue_;
  tensor_memory_ = plan.tensor_memory;
  PlanThreads(stream);
  suspicions_.Begin(artefact_.tensors.size());
  writes_.BeginAt(plan.reserved_size);
}

// What tensors and groups take, with so many tensors encoded at a time and as
// many more that wait for it or for their turn in the output.
uint64_t UnitEncoder::MemoryWith(unsigned workers, size_t places) const {
  const uint64_t waiting = options_.reconstruct ? 2 : 1;
  return workers * (tensor_memory_ + (places - 1) * place_memory_) +
         (workers == 1 ? 0 : (workers * waiting + kSpares) * job_size_) +
         groups_.memory(options_.reconstruct, places);
}

// As many threads as there are, on as many tensors as there is memory for.
// Where there are groups, one at a time: the thread of the call encodes a
// group when no job runs, and all others share its work.
void UnitEncoder::PlanThreads(bool stream) {
  bool shares = false;
  bool pays = false;
  for (const ArtefactTensor& tensor : artefact_.tensors) {
    job_size_ = std::max(job_size_, BytesOf(tensor.spec));
    shares |= tensor.codec.codec->shares_blocks();
    pays |= !tensor.codec.codec->at_memory_speed();
  }
  // What one thread copies to another is not worth more of them, where that
  // takes as long as to encode it.
  const bool copies = stream && job_size_ > kCached;
  if (!pays && (copies || job_size_ < kWorthwhile)) return UseOneThread();
  place_memory_ = std::min(kPlaceMemoryPerByte * job_size_, kMaxPlaceMemory);
  // Where the codec streams, a job takes what it holds for others.
  job_size_ += kAtOnce;
  const size_t tensors = groups_.any() ? 1 : artefact_.tensors.size();
  const uint64_t alone = MemoryWith(1, 1);
  const ThreadPlan plan =
      PlanOf(limits_.threads, tensors, shares || groups_.any(),
             [&](unsigned workers, size_t places) {
               return MemoryWith(workers, places) - alone;
             });
  workers_ = plan.workers;
  queue_.set_places(plan.places);
}

unsigned UnitEncoder::threads() const {
  return ThreadsOf(workers_, queue_.places(), limits_.threads.count);
}

void UnitEncoder::UseOneThread() {
  workers_ = 1;
  queue_.set_places(1);
}

absl::Status UnitEncoder::Start(EncodeJob::Read read, ViewWriter* restored,
                                CompressOutput* output) {
  const bool member = groups_.Has(index_) && read && queue_.places() > 1;
  if (!member) KVC_RETURN_IF_ERROR(SettleMembers(output));
  restored_view_ = restored;
  const ArtefactTensor& tensor = current();
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(tensor.spec));
  size_ = elements * DTypeSize(tensor.spec.dtype);
  builder_.report().elements += elements;
  hints_.thresholds = builder_.ThresholdsOf(tensor.spec.role);
  attention_.Tell(tensor.spec, options_.attention, &hints_);
  KVC_RETURN_IF_ERROR(CheckRope(*tensor.codec.codec, tensor.spec, hints_));
  sample_ = looks_at_layouts() ? suspicions_.StartTensor(tensor.spec) : nullptr;
  const bool learns = tensor.codec.codec->learns();
  const EarlierTensors::Teacher* const teacher =
      learns ? earlier_.Next(tensor.spec) : nullptr;
  hints_.earlier = teacher == nullptr ? nullptr : teacher->findings;
  if (member) return StartMember(std::move(read));
  // What is given back by parts comes tensor by tensor.
  if (workers_ == 1 || groups_.Has(index_) || restored != nullptr) {
    return StartInline(teacher, output);
  }
  job_ = std::make_shared<EncodeJob>(tensor, size_, hints_,
                                     options_.reconstruct, limits_.still_wanted,
                                     &pool_, &spares_, &queue_);
  job_->LookAt(std::move(sample_));
  if (read) job_->ReadFrom(std::move(read));
  KVC_RETURN_IF_ERROR(PlacePayload());
  if (teacher == nullptr) {
    if (learns) earlier_.Teach(job_);
  } else if (teacher->job != nullptr) {
    job_->RunAfterTeacher(teacher->job);
  }
  return absl::OkStatus();
}

// Lets the job of the unit under way write a large payload, where it is known
// where that begins and ends.
absl::Status UnitEncoder::PlacePayload() {
  if (!writes_.used()) return absl::OkStatus();
  if (jobs_.empty()) jobs_end_ = writes_.end() + unwritten_.size();
  const CodecSpec& codec = current().codec;
  if (!codec.codec->traits().fixed_size) jobs_end_.reset();
  if (!jobs_end_) return absl::OkStatus();
  KVC_ASSIGN_OR_RETURN(
      const uint64_t size,
      codec.codec->MaxEncodedSize(current().spec, codec.parameters));
  if (size >= kWorthwhile) job_->WriteTo(writes_.sink(), *jobs_end_, size);
  *jobs_end_ += size;
  return absl::OkStatus();
}

absl::Status UnitEncoder::StartInline(const EarlierTensors::Teacher* teacher,
                                      CompressOutput* output) {
  const ArtefactTensor& tensor = current();
  KVC_RETURN_IF_ERROR(SettleJobs(0, output));
  // Now the attention hints of the jobs before are known.
  attention_.Tell(tensor.spec, options_.attention, &hints_);
  if (teacher != nullptr && teacher->job != nullptr) {
    hints_.earlier = teacher->job->outcome().findings;
  }
  const bool grouped = groups_.Has(index_);
  KVC_ASSIGN_OR_RETURN(std::unique_ptr<TensorEncoder> encoder,
                       grouped
                           ? groups_.NewEncoder(index_, tensor.spec, hints_)
                           : tensor.codec.codec->NewEncoder(
                                 tensor.spec, tensor.codec.parameters, hints_));
  encoding_.emplace(tensor.spec, std::move(encoder),
                    !grouped && hints_.measures_tokens, hints_.checkpoint);
  return absl::OkStatus();
}

absl::Status UnitEncoder::Append(absl::string_view part,
                                 CompressOutput* output) {
  if (sample_ != nullptr) sample_->Add(part);
  if (job_ != nullptr) {
    job_->Append(part);
    return absl::OkStatus();
  }
  return Encode(output, [&](std::string* payload, std::string* decoded) {
    return encoding_->Append(part, payload, decoded);
  });
}

absl::Status UnitEncoder::Finish(CompressOutput* output) {
  if (job_ != nullptr) return SubmitJob(output);
  if (member_ != nullptr) return SubmitMember(output);
  return FinishInline(output);
}

absl::Status UnitEncoder::FinishInline(CompressOutput* output) {
  if (sample_ != nullptr) {
    suspicions_.FinishTensor(current().spec, sample_->Likely());
  }
  KVC_RETURN_IF_ERROR(
      Encode(output, [&](std::string* payload, std::string* decoded) {
        return encoding_->Finish(payload, decoded);
      }));
  ArtefactTensor& tensor = current();
  const TensorEncoder& encoder = encoding_->encoder();
  if (encoder.chosen() != nullptr) tensor.codec = *encoder.chosen();
  tensor.digest = encoding_->digest();
  Report(tensor, encoder.key_hints());
  if (encoder.findings() != nullptr) earlier_.Teach(encoder.findings());
  builder_.report().tensors.back().profile_group = groups_.GroupOf(index_);
  if (groups_.Has(index_)) {
    KVC_RETURN_IF_ERROR(EndGroup(output));
  } else {
    builder_.Settle(index_, encoder.distortion(), encoding_->TokensOf());
    EndPayload(index_, output);
    if (options_.reconstruct) ordered_.End(index_, &output->reconstructed);
  }
  restored_view_ = nullptr;
  ++index_;
  return absl::OkStatus();
}

// Runs a step of the encoding and accounts for the payload it returned.
template <typename Step>
absl::Status UnitEncoder::Encode(CompressOutput* output, Step step) {
  std::string* const payload = PayloadOf(index_, output);
  const size_t before = payload->size();
  std::string* decoded = nullptr;
  if (restored_view_ != nullptr) {
    restored_part_.clear();
    decoded = &restored_part_;
  } else if (options_.reconstruct) {
    decoded = ordered_.For(index_, &output->reconstructed);
  }
  KVC_RETURN_IF_ERROR(step(payload, decoded));
  if (restored_view_ != nullptr) restored_view_->Append(restored_part_);
  CountPayload(payload->size() - before, &current());
  return absl::OkStatus();
}

// Where the payload of a unit goes: it waits where one before it does.
std::string* UnitEncoder::PayloadOf(size_t unit, CompressOutput* output) {
  std::string* const out = PayloadsOf(output);
  return groups_.may_fall_back() ? payloads_.For(unit, out) : out;
}

void UnitEncoder::EndPayload(size_t unit, CompressOutput* output) {
  if (groups_.may_fall_back()) payloads_.End(unit, PayloadsOf(output));
}

// Where payloads go whose turn it is.
std::string* UnitEncoder::PayloadsOf(CompressOutput* output) {
  return writes_.used() ? &unwritten_ : &output->artefact;
}

absl::Status UnitEncoder::PassOn() { return PassOn(kWorthwhile); }

// Writes payloads that are not returned to the caller, once there are so many
// bytes of them.
absl::Status UnitEncoder::PassOn(uint64_t least) {
  if (unwritten_.size() < least) return absl::OkStatus();
  return writes_.Add(&unwritten_, /*now=*/workers_ == 1);
}

void UnitEncoder::CountPayload(uint64_t size, ArtefactTensor* tensor) {
  tensor->payload_size += size;
  payload_size_ += size;
}

void UnitEncoder::Report(const ArtefactTensor& tensor, KeyHints told) {
  builder_.Add(tensor, BytesOf(tensor.spec), told);
  attention_.Learn(tensor.spec, std::move(told));
}

// Hands the unit under way to whoever has time first.
absl::Status UnitEncoder::SubmitJob(CompressOutput* output) {
  const TensorSpec& spec = current().spec;
  if (current().codec.codec->traits().takes_key_hints &&
      spec.role == TensorRole::kValue && last_keys_ != nullptr &&
      spec.layer == last_keys_layer_) {
    job_->RunAfterKeys(last_keys_);
  }
  if (spec.role == TensorRole::kKey) {
    last_keys_ = job_;
    last_keys_layer_ = spec.layer;
  }
  jobs_.push_back({index_++, job_});
  queue_.Add(std::exchange(job_, nullptr));
  return SettleJobs(2 * workers_ - 1, output);
}

// Returns what jobs have made, in the order of the units, until `most` are
// left, with those that write it; and of those what is ready, where there is
// no output yet that it would have to be copied to.
absl::Status UnitEncoder::SettleJobs(size_t most, CompressOutput* output) {
  while (!jobs_.empty()) {
    const auto [index, job] = jobs_.front();
    if (jobs_.size() <= most &&
        (!output->artefact.empty() || !queue_.IsDone(*job))) {
      break;
    }
    KVC_RETURN_IF_ERROR(WaitFor(job, &queue_, hints_.checkpoint));
    jobs_.pop_front();
    KVC_RETURN_IF_ERROR(SettleJob(index, &job->outcome(), output));
  }
  KVC_RETURN_IF_ERROR(
      writes_.Settle(most - std::min(most, jobs_.size()), hints_.checkpoint));
  return StatusOf(hints_.checkpoint);
}

absl::Status UnitEncoder::SettleJob(size_t index, EncodedOutcome* outcome,
                                    CompressOutput* output) {
  ArtefactTensor& tensor = artefact_.tensors[index];
  if (outcome->chosen) tensor.codec = *outcome->chosen;
  tensor.digest = std::move(outcome->digest);
  CountPayload(outcome->written + outcome->payload.size(), &tensor);
  if (outcome->likely_layout) {
    suspicions_.FinishTensor(tensor.spec, *outcome->likely_layout);
  }
  if (outcome->written > 0) {
    KVC_RETURN_IF_ERROR(PassOn(1));
    writes_.Skip(outcome->written);
  }
  TakeOutput(&outcome->payload, &spares_.made, PayloadOf(index, output));
  EndPayload(index, output);
  KVC_RETURN_IF_ERROR(PassOn());
  Report(tensor, outcome->told);
  builder_.Settle(index, outcome->distortion, outcome->tokens);
  if (!options_.reconstruct) return absl::OkStatus();
  TakeOutput(&outcome->decoded, &spares_.restored,
             ordered_.For(index, &output->reconstructed));
  ordered_.End(index, &output->reconstructed);
  return absl::OkStatus();
}

// Moves what a job has made to `*out`; `*spare` gets memory that is left.
void UnitEncoder::TakeOutput(std::string* made, SpareString* spare,
                             std::string* out) {
  AppendInSlabs(hints_.checkpoint, made, out);
  spare->PutBack(made);
}

absl::Status UnitEncoder::SettleAll(CompressOutput* output) {
  KVC_RETURN_IF_ERROR(SettleJobs(0, output));
  KVC_RETURN_IF_ERROR(PassOn(1));
  return writes_.Settle(0, hints_.checkpoint);
}

void UnitEncoder::ReportSuspicions() {
  if (looks_at_layouts()) suspicions_.Report(&builder_.report().warnings);
}

}  // namespace kvcompress
