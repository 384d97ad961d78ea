// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "run/placed_tensors.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "digest/digest.h"
#include "kvcompress/layout.h"
#include "pipeline/selection.h"
#include "status/macros.h"
#include "tensor/grow.h"
#include "tensor/slabs.h"
#include "tensor/workers.h"

namespace kvcompress {
namespace {

// A string that is taken from others' for as long as this lives.
class Borrowed {
 public:
  explicit Borrowed(SpareString* spare) : spare_(spare), own_(spare->Take()) {}
  ~Borrowed() { spare_->PutBack(&own_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  std::string* operator->() { return &own_; }
  std::string& operator*() { return own_; }

 private:
  SpareString* const spare_;
  std::string own_;
};

// The bytes of a tensor, as they are decoded: leaves out tokens that are not
// selected, and puts the others where they belong.
class Placement {
 public:
  // `run` and `tensor` outlive this.
  Placement(const PlacedRun& run, const PlacedTensor& tensor)
      : run_(run), tensor_(tensor) {
    if (run.plan->tokens) {
      filter_.emplace(run.plan->header.tensors[tensor.index].spec,
                      *run.plan->tokens);
    }
    if (tensor.slab != nullptr) {
      view_.emplace(tensor.slab->layout(), tensor.view, tensor.slab->bytes());
    }
  }

  // Whether every element goes to where the one before it ends.
  bool is_plain() const { return !filter_ && !view_; }
  bool gives_all() const { return !filter_; }
  bool Overlaps(uint64_t begin, uint64_t end) const {
    return !filter_ || filter_->Overlaps(begin, end);
  }

  absl::Status Append(absl::string_view bytes) {
    if (filter_) {
      kept_.clear();
      filter_->Append(bytes, &kept_);
      bytes = kept_;
    }
    if (view_) {
      view_->Append(bytes);
      return absl::OkStatus();
    }
    const uint64_t at =
        tensor_.begin + std::exchange(done_, done_ + bytes.size());
    return WriteTo(run_.sink, at, bytes);
  }

  absl::Status End() {
    return view_ ? tensor_.slab->EndView() : absl::OkStatus();
  }

 private:
  const PlacedRun& run_;
  const PlacedTensor& tensor_;
  std::optional<TokenFilter> filter_;
  std::optional<ViewWriter> view_;
  std::string kept_;
  uint64_t done_ = 0;  // bytes
};

// Decodes one tensor.
class Decoding {
 public:
  Decoding(PlacedRun* run, const PlacedTensor& tensor, Checkpoint* checkpoint)
      : run_(*run),
        place_(tensor),
        tensor_(run->plan->header.tensors[tensor.index]),
        checkpoint_(checkpoint),
        payload_(&run->spares.taken) {
    if (run->plan->selected[tensor.index]) target_.emplace(*run, tensor);
  }

  absl::Status Decode() {
    KVC_ASSIGN_OR_RETURN(decoder_, NewDecoderOf(tensor_, place_.group.get(),
                                                place_.index, checkpoint_));
    if (target_ && !target_->gives_all()) {
      decoder_->set_needed([this](uint64_t begin, uint64_t end) {
        return target_->Overlaps(begin, end);
      });
    } else if (!target_ && !run_.plan->verify_only) {
      // The digest covers what is not decoded.
      decoder_->set_needed([](uint64_t, uint64_t) { return false; });
    }
    KVC_ASSIGN_OR_RETURN(const bool done, DecodeByMany());
    if (!done) KVC_RETURN_IF_ERROR(DecodeInSteps());
    return target_ ? target_->End() : absl::OkStatus();
  }

 private:
  // Where several threads may work on a tensor, and its payload is for that and
  // has its digest. Else false: steps say what is damaged.
  absl::StatusOr<bool> DecodeByMany() {
    const bool shares = tensor_.codec.codec->shares_blocks();
    if (run_.queue->places() == 1 || !target_ || !target_->gives_all() ||
        (!shares && !target_->is_plain())) {
      return false;
    }
    KVC_ASSIGN_OR_RETURN(const absl::string_view payload,
                         run_.source->Read(place_.payload_begin,
                                           tensor_.payload_size, &*payload_));
    const bool whole = HasDigest(tensor_, payload, checkpoint_);
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint_));
    if (!whole) return false;
    const size_t pieces =
        target_->is_plain() ? decoder_->Cut(payload, kPlacedPiece) : 0;
    if (pieces == 0) return shares ? DecodeWhole(payload) : false;
    const uint64_t element_size = DTypeSize(tensor_.spec.dtype);
    const auto decode = [&](size_t index, Checkpoint*) -> absl::Status {
      Borrowed decoded(&run_.spares.made);
      Reserve(kPlacedPiece, &*decoded);
      KVC_RETURN_IF_ERROR(decoder_->DecodePiece(index, &*decoded));
      return WriteTo(run_.sink,
                     place_.begin + decoder_->PieceBegin(index) * element_size,
                     *decoded);
    };
    KVC_RETURN_IF_ERROR(TryForEach(run_.queue, pieces, checkpoint_, decode));
    return true;
  }

  absl::StatusOr<bool> DecodeWhole(absl::string_view payload) {
    Borrowed decoded(&run_.spares.restored);
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(tensor_.spec));
    Reserve(elements * DTypeSize(tensor_.spec.dtype), &*decoded);
    KVC_ASSIGN_OR_RETURN(
        const bool done,
        decoder_->DecodeWhole(payload, run_.queue, checkpoint_, &*decoded));
    if (!done) return false;
    for (absl::string_view left = *decoded; !left.empty();) {
      if (Stops(checkpoint_)) return checkpoint_->status();
      const absl::string_view part = left.substr(0, kSlab);
      left.remove_prefix(part.size());
      KVC_RETURN_IF_ERROR(target_->Append(part));
    }
    KVC_RETURN_IF_ERROR(decoder_->Finish());
    return true;
  }

  absl::Status DecodeInSteps() {
    Borrowed decoded(&run_.spares.made);
    Digest digest;
    uint64_t read = 0;
    absl::string_view left;
    StepRoom room(kPlacedSlice);
    for (bool more = true; more || read < tensor_.payload_size;) {
      if (Stops(checkpoint_)) return checkpoint_->status();
      if (left.empty() && read < tensor_.payload_size) {
        const size_t size =
            std::min<uint64_t>(kPlacedSlice, tensor_.payload_size - read);
        KVC_ASSIGN_OR_RETURN(
            left,
            run_.source->Read(place_.payload_begin + read, size, &*payload_));
        digest.Update(left);
        read += size;
      }
      const size_t before = left.size();
      decoded->clear();
      KVC_ASSIGN_OR_RETURN(more,
                           decoder_->Decode(&left, room.bytes(), &*decoded));
      room.Step(left.size() < before || !decoded->empty());
      if (target_) KVC_RETURN_IF_ERROR(target_->Append(*decoded));
    }
    if (digest.Hex() != tensor_.digest) {
      return DigestMismatch(tensor_, place_.payload_begin);
    }
    return decoder_->Finish();
  }

  PlacedRun& run_;
  const PlacedTensor& place_;
  const ArtefactTensor& tensor_;
  Checkpoint* const checkpoint_;
  std::optional<Placement> target_;  // where it is given back
  Borrowed payload_;                 // where the source has no memory
  std::unique_ptr<TensorDecoder> decoder_;
};

}  // namespace

absl::Status WriteTo(PlacedSink* sink, uint64_t offset,
                     absl::string_view bytes) {
  if (bytes.empty()) return absl::OkStatus();
  char* const memory = sink->At(offset, bytes.size());
  if (memory == nullptr) return sink->Write(offset, bytes);
  std::memcpy(memory, bytes.data(), bytes.size());
  return absl::OkStatus();
}

void RestoredSlab::Free::operator()(char* bytes) const { std::free(bytes); }

char* RestoredSlab::bytes() {
  const std::lock_guard lock(mutex_);
  if (bytes_ != nullptr) return bytes_;
  bytes_ = sink_->At(begin_, layout_->slab_bytes());
  if (bytes_ == nullptr) {
    own_.reset(static_cast<char*>(std::malloc(layout_->slab_bytes() + 1)));
    if (own_ == nullptr) throw std::bad_alloc();
    AskForLargePages(own_.get(), layout_->slab_bytes());
    bytes_ = own_.get();
  }
  return bytes_;
}

absl::Status RestoredSlab::EndView() {
  if (--left_ > 0 || own_ == nullptr) return absl::OkStatus();
  const absl::Status status =
      sink_->Write(begin_, {own_.get(), layout_->slab_bytes()});
  own_.reset();
  return status;
}

void PlacedJob::Add(PlacedTensor tensor) {
  const ArtefactTensor& its = run_->plan->header.tensors[tensor.index];
  payload_bytes_ += its.payload_size;
  bytes_ += its.payload_size;
  const absl::StatusOr<uint64_t> elements = ElementCount(its.spec);
  if (elements.ok()) bytes_ += *elements * DTypeSize(its.spec.dtype);
  if (tensor.group != nullptr) RunAfter(tensor.group);
  tensors_.push_back(std::move(tensor));
}

void PlacedJob::Run() {
  Checkpoint checkpoint = run_->queue->CheckpointOf(run_->still_wanted);
  for (const PlacedTensor& tensor : tensors_) {
    status_ = Decoding(run_, tensor, &checkpoint).Decode();
    if (!status_.ok()) break;
  }
  // Groups and slabs go with the last that needs them.
  std::vector<PlacedTensor>().swap(tensors_);
}

}  // namespace kvcompress
