// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/decompressor.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "pipeline/decode_jobs.h"
#include "pipeline/group_members.h"
#include "pipeline/groups.h"
#include "pipeline/selection.h"
#include "pipeline/tensor_decoding.h"
#include "pipeline/working_memory.h"
#include "plan/decompress_plan.h"
#include "run/arriving_jobs.h"
#include "run/restored_output.h"
#include "status/macros.h"
#include "tensor/grow.h"

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
      if (by_jobs() && index_ < plan_.header.tensors.size()) {
        KVC_ASSIGN_OR_RETURN(const bool moved, StepJobs(bytes));
        if (!moved) return false;
        continue;
      }
      if (index_ == plan_.header.tensors.size()) {
        if (bytes->empty()) return false;
        return TrailingBytes(position_);
      }
      if (has_turns_ && decoder_ == nullptr) {
        KVC_ASSIGN_OR_RETURN(const bool ready, TakeTurn(bytes));
        if (!ready) return false;
      }
      absl::string_view* const source = has_turns_ ? &due_ : bytes;
      const bool aside =
          !plan_.selected[order_[index_]] || filter_ || output_.is_view();
      KVC_ASSIGN_OR_RETURN(const bool more,
                           aside ? DecodeAside(source, most, &work)
                                 : DecodePayload(source, most, restored));
      if (more) {
        if (!aside) return true;
      } else if (remaining_ == 0) {
        KVC_RETURN_IF_ERROR(FinishTensor());
      } else if (source->empty() && output_.empty()) {
        return false;
      }
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
    if (index_ < plan_.header.tensors.size()) {
      return plan_.CutShort(due(), missing(), position_);
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
    PlanTurns();
    if (const auto threads = plan_.ThreadsOf(limits_.threads)) {
      jobs_.Follow(*threads);
    }
    return StartTensor();
  }

  // Whether payloads wait until their turn has come: because of groups, or
  // since they do not come in the order in which tensors are returned.
  void PlanTurns() {
    has_turns_ =
        !plan_.groups.empty() || !std::is_sorted(order_.begin(), order_.end());
    arriving_.Begin(has_turns_);
    if (!has_turns_) return;
    held_.resize(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      waiting_size_ += plan_.header.tensors[i].payload_size;
      if (plan_.groups.Has(i)) ++members_left_[plan_.groups.GroupOf(i)];
    }
  }

  // Whether tensors are decoded whole, several of them or by several threads.
  bool by_jobs() const { return jobs_.workers() > 1 || jobs_.places() > 1; }

  // Decodes a step of the current tensor from the front of `*bytes`; see
  // TensorDecoder::Decode.
  absl::StatusOr<bool> DecodePayload(absl::string_view* bytes, size_t most,
                                     std::string* decoded) {
    const absl::string_view part = bytes->substr(0, remaining_);
    absl::string_view left = part;
    absl::StatusOr<bool> more = decoder_->Decode(&left, most, decoded);
    const size_t taken = part.size() - left.size();
    digest_.Update(part.substr(0, taken));
    bytes->remove_prefix(taken);
    remaining_ -= taken;
    if (!has_turns_) position_ += taken;
    return more;
  }

  // The same, of which only what is selected becomes ready. Adds to `*work`
  // the bytes that were decoded.
  absl::StatusOr<bool> DecodeAside(absl::string_view* bytes, size_t most,
                                   uint64_t* work) {
    most = std::min(most, kAsideBytes);
    scratch_.clear();
    const bool selected = plan_.selected[order_[index_]];
    if (output_.is_view() && selected) output_.OpenView(index_);
    KVC_ASSIGN_OR_RETURN(const bool more,
                         DecodePayload(bytes, most, &scratch_));
    // A decoder that stopped may have kept what it decoded.
    *work += more ? std::max(most, scratch_.size()) : scratch_.size();
    if (!selected) return more;
    if (!output_.is_open()) {
      filter_->Append(scratch_, output_.bytes());
    } else if (filter_) {
      kept_.clear();
      filter_->Append(scratch_, &kept_);
      output_.Append(kept_);
    } else {
      output_.Append(scratch_);
    }
    return more;
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

  // The tensor whose payload comes next, and bytes of it that are missing.
  size_t due() const {
    if (by_jobs()) return arriving_.next();
    return has_turns_ ? collected_ : index_;
  }
  uint64_t missing() const {
    if (by_jobs()) return arriving_.missing();
    if (!has_turns_) return remaining_;
    return plan_.header.tensors[collected_].payload_size -
           held_[collected_].size();
  }

  // Where payloads wait and one thread works: keeps them until the turn of the
  // next tensor has come, and sets up its decoder. False when it needs more
  // bytes.
  absl::StatusOr<bool> TakeTurn(absl::string_view* bytes) {
    const size_t tensor = order_[index_];
    for (; collected_ <= plan_.NeededFor(tensor); ++collected_) {
      const uint64_t size = plan_.header.tensors[collected_].payload_size;
      std::string& held = held_[collected_];
      Reserve(size, &held);
      const absl::string_view part = bytes->substr(0, size - held.size());
      held.append(part.data(), part.size());
      bytes->remove_prefix(part.size());
      position_ += part.size();
      if (held.size() < size) return false;
    }
    due_ = held_[tensor];
    remaining_ = due_.size();
    KVC_RETURN_IF_ERROR(NewDecoder(tensor));
    return true;
  }

  // Sets up the decoder of a tensor, whose turn it is.
  absl::Status NewDecoder(size_t tensor) {
    const ArtefactTensor& its = plan_.header.tensors[tensor];
    if (plan_.groups.Has(tensor) &&
        !plan_.Needs(plan_.groups.GroupOf(tensor))) {
      decoder_ = NewSkippingDecoder();
    } else if (plan_.groups.Has(tensor)) {
      const size_t group = plan_.groups.GroupOf(tensor);
      std::shared_ptr<const profile::GroupQuanta>& quanta = quanta_[group];
      if (quanta == nullptr) {
        KVC_ASSIGN_OR_RETURN(
            quanta, plan_.groups.Parse(group, held_[plan_.groups.LastOf(group)],
                                       checkpoint(), /*workers=*/nullptr));
      }
      decoder_ = plan_.groups.NewDecoder(tensor, quanta, checkpoint());
    } else {
      KVC_ASSIGN_OR_RETURN(decoder_, its.codec.codec->NewDecoder(
                                         its.spec, its.codec.parameters));
    }
    NeedWhatIsSelected();
    return absl::OkStatus();
  }

  absl::Status StartTensor() {
    if (index_ == plan_.header.tensors.size()) return absl::OkStatus();
    const ArtefactTensor& tensor = Current();
    remaining_ = tensor.payload_size;
    digest_ = Digest();
    output_.Start(index_, order_[index_]);
    filter_.reset();
    if (plan_.tokens && plan_.selected[order_[index_]]) {
      filter_.emplace(tensor.spec, *plan_.tokens);
    }
    return has_turns_ ? absl::OkStatus() : NewDecoder(index_);
  }

  void NeedWhatIsSelected() {
    // The digest covers what is not decoded.
    if (filter_) {
      decoder_->set_needed([this](uint64_t begin, uint64_t end) {
        return filter_->Overlaps(begin, end);
      });
    } else if (!plan_.selected[order_[index_]] && !plan_.verify_only) {
      decoder_->set_needed([](uint64_t, uint64_t) { return false; });
    }
  }

  // Ends the current tensor, whose payload is decoded.
  absl::Status FinishTensor() {
    const size_t tensor = order_[index_];
    if (digest_.Hex() != Current().digest) {
      return DigestMismatch(Current(), plan_.PayloadBegin(tensor));
    }
    KVC_RETURN_IF_ERROR(decoder_->Finish());
    if (output_.is_view()) output_.FinishView(index_);
    decoder_.reset();
    if (has_turns_) std::string().swap(held_[tensor]);
    if (plan_.groups.Has(tensor) &&
        --members_left_[plan_.groups.GroupOf(tensor)] == 0) {
      quanta_.erase(plan_.groups.GroupOf(tensor));
    }
    ++index_;
    return StartTensor();
  }

  const ArtefactTensor& Current() const {
    return plan_.header.tensors[order_[index_]];
  }

  DecompressOptions options_;
  const DecompressLimits limits_;
  std::optional<Checkpoint> checkpoint_;
  SafetensorsHeaderReader header_reader_;
  bool begun_ = false;
  uint64_t position_ = 0;  // in the artefact
  DecompressPlan plan_;
  RestoredOutput output_{plan_};
  std::string scratch_;
  std::string kept_;  // of a view, where a range of tokens is given back

  // Tensors and views in the order in which they are given back.
  std::vector<size_t> order_;

  // The tensor, or view, that is being decoded, or given back next: the index
  // of its place in order_.
  size_t index_ = 0;
  uint64_t remaining_ = 0;  // bytes of its payload still to come
  std::unique_ptr<TensorDecoder> decoder_;
  std::optional<TokenFilter> filter_;
  Digest digest_;

  // Where payloads wait for the turn of their tensors.
  bool has_turns_ = false;
  uint64_t waiting_size_ = 0;              // most bytes of them
  size_t collected_ = 0;                   // tensors whose payload has come
  std::map<size_t, size_t> members_left_;  // of groups, before their turn

  // Where one thread works, by tensor: what was decoded is empty.
  std::vector<std::string> held_;
  absl::string_view due_;  // what is left of the current tensor's
  std::map<size_t, std::shared_ptr<const profile::GroupQuanta>> quanta_;

  // Where several threads decode.
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
