// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/decompressor.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/decode_jobs.h"
#include "pipeline/working_memory.h"
#include "plan/decompress_plan.h"
#include "run/arriving_jobs.h"
#include "run/arriving_steps.h"
#include "run/restored_output.h"
#include "status/macros.h"

namespace kvcompress {

class Decompressor::Impl {
 public:
  Impl(DecompressOptions options, DecompressLimits limits)
      : options_(std::move(options)),
        limits_(std::move(limits)),
        header_reader_(limits_.max_header_bytes) {
    if (limits_.still_wanted) checkpoint_.emplace(limits_.still_wanted);
  }

  absl::StatusOr<bool> Restore(absl::string_view* bytes, size_t most,
                               std::string* restored) {
    if (!begun_) {
      if (absl::Status status = header_reader_.Append(bytes); !status.ok()) {
        return ArtefactHeaderError(status);
      }
      if (!header_reader_.done()) return false;
      position_ = header_reader_.raw().size();
      KVC_ASSIGN_OR_RETURN(
          ArtefactHeader header,
          ParseArtefactHeader(header_reader_.raw(), checkpoint()));
      header_reader_ = SafetensorsHeaderReader(0);
      KVC_RETURN_IF_ERROR(Begin(std::move(header), position_));
      return true;
    }
    // Decoded bytes that this call has not put into `*restored` itself.
    for (uint64_t work = 0;;) {
      if (!output_.Give(most, by_jobs() ? &jobs_.spares().made : nullptr,
                        restored) ||
          work >= most) {
        return true;
      }
      if (done()) {
        if (bytes->empty()) return false;
        return TrailingBytes(position_);
      }
      if (by_jobs()) {
        KVC_ASSIGN_OR_RETURN(const bool moved, StepJobs(bytes));
        if (!moved) return false;
        continue;
      }
      KVC_ASSIGN_OR_RETURN(
          const ArrivingSteps::Progress progress,
          steps_.Step(bytes, &position_, most, restored, &work));
      if (progress == ArrivingSteps::Progress::kFull) return true;
      if (progress == ArrivingSteps::Progress::kNone) return false;
    }
  }

  uint64_t working_bytes() const {
    if (!begun_) return kHeaderMemory * header_reader_.raw().size();
    return kHeaderMemory * plan_.header_size + plan_.groups.memory() +
           waiting_size_ + plan_.slab_memory +
           plan_.MemoryWith(jobs_.workers(), jobs_.places());
  }

  unsigned threads() const { return jobs_.threads(); }
  void UseOneThread() { jobs_.UseOneThread(); }

  absl::StatusOr<DecompressReport> Finish() {
    if (!begun_) return ArtefactHeaderError(header_reader_.TruncatedError());
    if (!done()) {
      return by_jobs()
                 ? plan_.CutShort(arriving_.next(), arriving_.missing(),
                                  position_)
                 : plan_.CutShort(steps_.next(), steps_.missing(), position_);
    }
    return plan_.TakeReport(position_);
  }

 private:
  // Null where nobody asks.
  Checkpoint* checkpoint() { return checkpoint_ ? &*checkpoint_ : nullptr; }

  // Takes over the header of the artefact.
  absl::Status Begin(ArtefactHeader header, uint64_t header_size) {
    KVC_ASSIGN_OR_RETURN(
        plan_, DecompressPlan::Make(options_, limits_, std::move(header),
                                    header_size, checkpoint()));
    options_ = {};
    begun_ = true;
    for (const DecompressPlan::Source& source : plan_.sources) {
      if (StopsAt(order_.size(), checkpoint())) return checkpoint()->status();
      for (size_t i = 0; i < source.count; ++i) {
        order_.push_back(source.first + i);
      }
    }
    *output_.bytes() = std::move(plan_.output_header);
    // Payloads wait until their turn has come: because of groups, or since they
    // do not come in the order in which tensors are returned.
    const bool turns =
        !plan_.groups.empty() || !std::is_sorted(order_.begin(), order_.end());
    for (const ArtefactTensor& tensor : plan_.header.tensors) {
      if (turns) waiting_size_ += tensor.payload_size;
    }
    arriving_.Begin(turns);
    if (const auto threads = plan_.ThreadsOf(limits_.threads)) {
      jobs_.Follow(*threads);
    }
    return steps_.Begin(turns, checkpoint());
  }

  // Whether tensors are decoded whole, several of them or by several threads.
  bool by_jobs() const { return jobs_.workers() > 1 || jobs_.places() > 1; }
  bool done() const {
    return by_jobs() ? index_ == order_.size() : steps_.done();
  }

  // Where tensors are decoded whole: takes payload until there is a job, or
  // makes ready what one has decoded. False when that needs more bytes.
  absl::StatusOr<bool> StepJobs(absl::string_view* bytes) {
    arriving_.AddDue();
    if (!jobs_.empty() &&
        (arriving_.all_came() || jobs_.is_full() || jobs_.IsReady())) {
      KVC_RETURN_IF_ERROR(TakeDecoded());
      return true;
    }
    return arriving_.Take(bytes, &position_);
  }

  // Makes ready what comes next of what jobs decode: of the current tensor.
  absl::Status TakeDecoded() {
    KVC_ASSIGN_OR_RETURN(DecodeJobs::Part part, jobs_.Take(checkpoint()));
    if (!output_.is_view()) {
      *output_.bytes() = std::move(part.bytes);
    } else {
      if (plan_.selected[order_[index_]]) {
        output_.OpenView(index_);
        output_.Append(part.bytes);
      }
      jobs_.spares().made.PutBack(&part.bytes);
      output_.FinishView(index_);
    }
    if (part.is_last && ++index_ < order_.size()) {
      output_.Start(index_, order_[index_]);
    }
    return absl::OkStatus();
  }

  DecompressOptions options_;
  const DecompressLimits limits_;
  std::optional<Checkpoint> checkpoint_;
  SafetensorsHeaderReader header_reader_;
  bool begun_ = false;
  uint64_t position_ = 0;  // in the artefact
  DecompressPlan plan_;
  uint64_t waiting_size_ = 0;  // most bytes of payloads that wait for a turn

  // Tensors and views in the order in which they are given back.
  std::vector<size_t> order_;
  RestoredOutput output_{plan_};

  // Where one thread works.
  ArrivingSteps steps_{plan_, order_, &output_};

  // Where several do: the place in order_ of what is given back next.
  size_t index_ = 0;
  DecodeJobs jobs_{limits_.threads};  // ends before what its jobs work with
  ArrivingJobs arriving_{plan_, order_, limits_.still_wanted, &jobs_};
};

Decompressor::Decompressor(DecompressOptions options, DecompressLimits limits)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(limits))) {}
Decompressor::~Decompressor() = default;

absl::StatusOr<bool> Decompressor::Restore(absl::string_view* bytes,
                                           size_t most, std::string* restored) {
  return impl_->Restore(bytes, most, restored);
}
uint64_t Decompressor::working_bytes() const { return impl_->working_bytes(); }
unsigned Decompressor::threads() const { return impl_->threads(); }
void Decompressor::UseOneThread() { impl_->UseOneThread(); }
absl::StatusOr<DecompressReport> Decompressor::Finish() {
  return impl_->Finish();
}

}  // namespace kvcompress
