// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// More than 400 lines: the steps of one stream share all of its state.

#include "kvcompress/decompressor.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "pipeline/decode_jobs.h"
#include "pipeline/group_members.h"
#include "pipeline/groups.h"
#include "pipeline/job_queue.h"
#include "pipeline/selection.h"
#include "pipeline/tensor_decoding.h"
#include "pipeline/working_memory.h"
#include "plan/decompress_plan.h"
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
      if (!Give(most, restored) || work >= most) return true;
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
          !plan_.selected[order_[index_]] || filter_ || layout_ != nullptr;
      KVC_ASSIGN_OR_RETURN(const bool more,
                           aside ? DecodeAside(source, most, &work)
                                 : DecodePayload(source, most, restored));
      if (more) {
        if (!aside) return true;
      } else if (remaining_ == 0) {
        KVC_RETURN_IF_ERROR(FinishTensor());
      } else if (source->empty() && ready_.empty()) {
        return false;
      }
    }
  }

  uint64_t working_bytes() const {
    if (!begun_) return kHeaderMemory * header_reader_.raw().size();
    return kHeaderMemory * plan_.header_size + plan_.groups.memory() +
           waiting_size_ + plan_.slab_memory +
           MemoryWith(jobs_.workers(), jobs_.places());
  }

  unsigned threads() const { return jobs_.threads(); }
  void UseOneThread() { jobs_.UseOneThread(); }

  absl::StatusOr<DecompressReport> Finish() {
    if (!begun_) return ArtefactHeaderError(header_reader_.TruncatedError());
    if (index_ < plan_.header.tensors.size()) {
      return plan_.CutShort(due(), Missing(), position_);
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
    ready_ = std::move(plan_.output_header);
    PlanTurns();
    PlanThreads();
    return StartTensor();
  }

  // Whether payloads wait until their turn has come: because of groups, or
  // since they do not come in the order in which tensors are returned.
  void PlanTurns() {
    has_turns_ =
        !plan_.groups.empty() || !std::is_sorted(order_.begin(), order_.end());
    if (!has_turns_) return;
    came_.resize(order_.size());
    held_.resize(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      waiting_size_ += plan_.header.tensors[i].payload_size;
      if (plan_.groups.Has(i)) ++members_left_[plan_.groups.GroupOf(i)];
    }
  }

  // What is held besides the header, with so many tensors decoded at a time,
  // and as many more that wait for it or to be given back.
  uint64_t MemoryWith(unsigned workers, size_t places) const {
    if (workers == 1 && places == 1)
      return plan_.decoder_memory + 2 * plan_.aside_memory;
    // And what waits to be used again.
    return workers * (plan_.decoder_memory + kMaxDecodedBlock +
                      2 * plan_.tensor_memory + (places - 1) * place_memory_) +
           plan_.tensor_memory;
  }

  // Whether tensors are decoded whole, several of them or by several threads.
  bool by_jobs() const { return jobs_.workers() > 1 || jobs_.places() > 1; }

  // As many threads as there are, on as many tensors as there is memory for.
  void PlanThreads() {
    bool shares = !plan_.verify_only && !plan_.tokens;
    bool pays = false;
    for (const ArtefactTensor& tensor : plan_.header.tensors) {
      // What a group of a profile shares are blocks of its payload.
      shares &= tensor.codec.codec->shares_blocks() ||
                tensor.codec.codec->coded_in_groups();
      pays |= !tensor.codec.codec->at_memory_speed();
    }
    if (!pays) return;
    place_memory_ = std::min(plan_.decoder_memory, kMaxPlaceMemory);
    jobs_.Follow(PlanOf(limits_.threads, plan_.header.tensors.size(), shares,
                        [&](unsigned workers, size_t places) {
                          return MemoryWith(workers, places) - MemoryWith(1, 1);
                        }));
  }

  // Moves pending output to `restored`; returns false if some remains.
  bool Give(size_t most, std::string* restored) {
    const absl::string_view ready =
        ready_slab_ == 0 ? absl::string_view(ready_)
                         : absl::string_view(slab_.get(), ready_slab_);
    if (ready.empty()) return true;
    const size_t room = most > restored->size() ? most - restored->size() : 0;
    // What comes whole changes hands.
    if (by_jobs() && ready_slab_ == 0 && given_ == 0 && restored->empty() &&
        ready.size() <= room) {
      restored->swap(ready_);
      jobs_.spares().made.PutBack(&ready_);
      return true;
    }
    const absl::string_view given = ready.substr(given_, room);
    restored->append(given.data(), given.size());
    given_ += given.size();
    if (given_ < ready.size()) return false;
    given_ = 0;
    ready_slab_ = 0;
    if (by_jobs()) {
      jobs_.spares().made.PutBack(&ready_);
    } else {
      // A header is large, and comes once.
      ready_.size() > plan_.aside_memory ? std::string().swap(ready_)
                                         : ready_.clear();
    }
    return true;
  }

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
    if (layout_ != nullptr && selected) RestoreView();
    KVC_ASSIGN_OR_RETURN(const bool more,
                         DecodePayload(bytes, most, &scratch_));
    // A decoder that stopped may have kept what it decoded.
    *work += more ? std::max(most, scratch_.size()) : scratch_.size();
    if (!selected) return more;
    if (!restored_view_) {
      filter_->Append(scratch_, &ready_);
    } else if (filter_) {
      kept_.clear();
      filter_->Append(scratch_, &kept_);
      restored_view_->Append(kept_);
    } else {
      restored_view_->Append(scratch_);
    }
    return more;
  }

  // Makes space for what the current view is restored to.
  void RestoreView() {
    if (restored_view_) return;
    if (slab_ == nullptr) {
      // Zeros that the system need not write before they are touched.
      slab_.reset(static_cast<char*>(std::calloc(plan_.slab_memory + 1, 1)));
      if (slab_ == nullptr) throw std::bad_alloc();
    }
    restored_view_.emplace(*layout_, index_ - first_view_, slab_.get());
  }

  // Where tensors are decoded whole: takes payload until there is a job, or
  // makes ready what one has decoded. False when that needs more bytes.
  absl::StatusOr<bool> StepJobs(absl::string_view* bytes) {
    AddJobs();
    const bool all_came = collected_ == plan_.header.tensors.size();
    if (!jobs_.empty() && (all_came || jobs_.is_full() || jobs_.IsReady())) {
      KVC_RETURN_IF_ERROR(TakeDecoded());
      return true;
    }
    if (job_ == nullptr) StartJob();
    const absl::string_view part = bytes->substr(0, remaining_);
    bytes->remove_prefix(part.size());
    position_ += part.size();
    remaining_ = job_->Append(part);
    if (remaining_ > 0) return false;
    if (has_turns_) {
      TakePayload(collected_);
    } else {
      jobs_.Add(std::exchange(job_, nullptr));
    }
    ++collected_;
    return true;
  }

  void StartJob() {
    const ArtefactTensor& tensor = plan_.header.tensors[collected_];
    job_ = std::make_shared<DecodeJob>(tensor, position_, UseOf(collected_),
                                       plan_.tokens, limits_.still_wanted,
                                       &jobs_.spares(), &jobs_.queue());
    remaining_ = tensor.payload_size;
  }

  DecodeJob::Use UseOf(size_t tensor) const {
    if (plan_.selected[tensor]) {
      return plan_.header.laid_out.empty() ? DecodeJob::Use::kGiveBack
                                           : DecodeJob::Use::kGiveWhole;
    }
    return plan_.verify_only ? DecodeJob::Use::kCheck : DecodeJob::Use::kSkip;
  }

  // Where tensors have turns: one has come. Begins to read its group, where it
  // is the last of one of which anything is needed.
  void TakePayload(size_t tensor) {
    came_[tensor] = std::exchange(job_, nullptr);
    if (!plan_.groups.Has(tensor)) return;
    const size_t group = plan_.groups.GroupOf(tensor);
    if (plan_.groups.LastOf(group) != tensor) return;
    if (!plan_.Needs(group)) return;
    auto job = std::make_shared<GroupJob>(
        &plan_.groups, group,
        [payload = came_[tensor]->payload()](std::string*) { return payload; },
        limits_.still_wanted, &jobs_.queue());
    // Also where it is skipped: what is read is its payload.
    came_[tensor]->RunAfter(job);
    jobs_.queue().Add(job);
    group_jobs_[group] = std::move(job);
  }

  // Adds the jobs whose turn it is, as far as they have come and may be at
  // work.
  void AddJobs() {
    while (added_ < came_.size() && !jobs_.is_full()) {
      const size_t tensor = order_[added_];
      if (NeededFor(tensor) >= collected_) return;
      std::shared_ptr<DecodeJob> job = std::move(came_[tensor]);
      if (plan_.groups.Has(tensor)) JoinGroup(tensor, job.get());
      jobs_.Add(std::move(job));
      ++added_;
    }
  }

  // Decodes a member by its group, which is forgotten with its last one.
  void JoinGroup(size_t tensor, DecodeJob* job) {
    const size_t group = plan_.groups.GroupOf(tensor);
    const auto found = group_jobs_.find(group);
    if (found == group_jobs_.end()) return;
    if (UseOf(tensor) != DecodeJob::Use::kSkip) {
      job->DecodeBy(found->second, tensor);
    }
    if (--members_left_[group] == 0) group_jobs_.erase(found);
  }

  // Makes ready what comes next of what jobs decode: of the current tensor.
  absl::Status TakeDecoded() {
    KVC_ASSIGN_OR_RETURN(DecodeJobs::Part part, jobs_.Take(checkpoint()));
    if (layout_ == nullptr) {
      ready_ = std::move(part.bytes);
    } else {
      if (plan_.selected[order_[index_]]) {
        RestoreView();
        restored_view_->Append(part.bytes);
      }
      jobs_.spares().made.PutBack(&part.bytes);
      FinishView();
    }
    if (!part.is_last) return absl::OkStatus();
    ++index_;
    return index_ == plan_.header.tensors.size() ? absl::OkStatus()
                                                 : StartView();
  }

  // Of the tensor whose payload comes next.
  size_t due() const { return by_jobs() || has_turns_ ? collected_ : index_; }

  // Bytes of that payload.
  uint64_t Missing() const {
    if (!by_jobs() && !has_turns_) return remaining_;
    const uint64_t size = plan_.header.tensors[collected_].payload_size;
    if (!by_jobs()) return size - held_[collected_].size();
    return job_ == nullptr ? size : size - job_->payload().size();
  }

  // Where payloads wait and one thread works: keeps them until the turn of the
  // next tensor has come, and sets up its decoder. False when it needs more
  // bytes.
  absl::StatusOr<bool> TakeTurn(absl::string_view* bytes) {
    const size_t tensor = order_[index_];
    for (; collected_ <= NeededFor(tensor); ++collected_) {
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

  // The last tensor whose payload must have come before one can be decoded.
  size_t NeededFor(size_t tensor) const {
    return plan_.groups.Has(tensor)
               ? plan_.groups.LastOf(plan_.groups.GroupOf(tensor))
               : tensor;
  }

  absl::Status StartTensor() {
    if (index_ == plan_.header.tensors.size()) return absl::OkStatus();
    const ArtefactTensor& tensor = Current();
    remaining_ = tensor.payload_size;
    digest_ = Digest();
    KVC_RETURN_IF_ERROR(StartView());
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

  // Where the current tensor is the first of views: takes their layout.
  absl::Status StartView() {
    restored_view_.reset();
    if (layout_ != nullptr) return absl::OkStatus();
    const size_t tensor = order_[index_];
    const auto next = std::lower_bound(
        plan_.header.laid_out.begin(), plan_.header.laid_out.end(), tensor,
        [](const LaidOutTensor& each, size_t at) { return each.first < at; });
    if (next == plan_.header.laid_out.end() || next->first != tensor) {
      return absl::OkStatus();
    }
    layout_ = &plan_.LaidOut(
        static_cast<size_t>(next - plan_.header.laid_out.begin()));
    first_view_ = index_;
    return absl::OkStatus();
  }

  // The current view is complete, and perhaps its slab or its tensor.
  void FinishView() {
    const uint64_t done = index_ - first_view_ + 1;
    if (restored_view_ && done % layout_->views_per_slab() == 0) {
      ready_slab_ = layout_->slab_bytes();
    }
    if (done == layout_->views()) layout_ = nullptr;
  }

  // Ends the current tensor, whose payload is decoded.
  absl::Status FinishTensor() {
    const size_t tensor = order_[index_];
    if (digest_.Hex() != Current().digest) {
      return DigestMismatch(Current(), plan_.PayloadBegin(tensor));
    }
    KVC_RETURN_IF_ERROR(decoder_->Finish());
    if (layout_ != nullptr) FinishView();
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
  std::string ready_;  // the next bytes to be given
  size_t given_ = 0;   // bytes of it that were
  std::string scratch_;

  // The tensor in a layout that is being decoded, as it is given back; null
  // when it is none.
  const Layout* layout_ = nullptr;
  size_t first_view_ = 0;  // of order_
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char[], Free> slab_;  // of plan_.slab_memory bytes
  uint64_t ready_slab_ = 0;  // bytes of it, where these are what is ready
  std::optional<ViewWriter> restored_view_;
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
  uint64_t place_memory_ = 0;       // most bytes that one works on blocks in
  std::shared_ptr<DecodeJob> job_;  // whose payload is coming
  std::vector<std::shared_ptr<DecodeJob>> came_;  // whose turn has not come
  size_t added_ = 0;                              // of order_
  std::map<size_t, std::shared_ptr<GroupJob>> group_jobs_;  // by group
  DecodeJobs jobs_{limits_.threads};  // ends before what its jobs work with
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
