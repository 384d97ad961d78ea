// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/tensor_decoding.h"

#include <memory>
#include <utility>

#include "digest/digest.h"
#include "kvcompress/codec.h"
#include "kvcompress/error.h"
#include "pipeline/group_members.h"
#include "status/macros.h"
#include "tensor/grow.h"
#include "tensor/slabs.h"

namespace kvcompress {
namespace {

// Bytes that are decoded between two looks at the checkpoint, or a block that
// is larger: what a processor decodes in a few milliseconds at most.
constexpr size_t kSlice = 256 << 10;
// Bytes that a piece becomes: as many as a caller takes at a time.
constexpr size_t kPiece = 1 << 20;

}  // namespace

absl::Status DigestMismatch(const ArtefactTensor& tensor, uint64_t offset) {
  return MakeError(absl::StatusCode::kDataLoss,
                   "the payload does not match its digest",
                   {.reason = "PAYLOAD_DAMAGED",
                    .tensor = tensor.spec.name,
                    .offset = offset});
}

DecodeJob::DecodeJob(const ArtefactTensor& tensor, uint64_t offset, Use use,
                     std::optional<TokenRange> tokens, StillWanted still_wanted,
                     SpareStrings* spares, JobQueue* queue)
    : tensor_(tensor),
      offset_(offset),
      use_(use),
      tokens_(tokens),
      still_wanted_(std::move(still_wanted)),
      spares_(spares),
      queue_(queue),
      payload_(spares->taken.Take()) {
  Reserve(tensor.payload_size, &payload_);
}

void GroupJob::Run() {
  Checkpoint checkpoint = queue_->CheckpointOf(still_wanted_);
  std::string buffer;
  const absl::StatusOr<absl::string_view> payload = payload_(&buffer);
  if (!payload.ok()) {
    quanta_ = payload.status();
    return;
  }
  Sharers sharers(queue_, threads_);
  quanta_ = groups_->Parse(group_, *payload, &checkpoint, &sharers);
}

absl::StatusOr<std::unique_ptr<TensorDecoder>> GroupJob::NewDecoder(
    size_t tensor, Checkpoint* checkpoint) const {
  KVC_RETURN_IF_ERROR(quanta_.status());
  return groups_->NewDecoder(tensor, *quanta_, checkpoint);
}

void DecodeJob::Run() {
  Checkpoint checkpoint = queue_->CheckpointOf(still_wanted_);
  status_ = Decode(&checkpoint);
  group_.reset();
  if (pieces_ == 0) Release();
}

void PieceJob::Run() {
  Checkpoint checkpoint = tensor_->queue_->CheckpointOf(tensor_->still_wanted_);
  if (Stops(&checkpoint)) {
    status_ = checkpoint.status();
    return;
  }
  decoded_ = tensor_->spares_->made.Take();
  Reserve(kPiece, &decoded_);
  status_ = tensor_->decoder_->DecodePiece(index_, &decoded_);
}

absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoderOf(
    const ArtefactTensor& tensor, const GroupJob* group, size_t index,
    Checkpoint* checkpoint) {
  const Codec& codec = *tensor.codec.codec;
  if (group != nullptr) return group->NewDecoder(index, checkpoint);
  if (codec.coded_in_groups()) return NewSkippingDecoder();
  return codec.NewDecoder(tensor.spec, tensor.codec.parameters);
}

bool HasDigest(const ArtefactTensor& tensor, absl::string_view payload,
               Checkpoint* checkpoint) {
  Digest digest;
  InSlabs(checkpoint, payload.size(), [&](size_t first, size_t size) {
    digest.Update(payload.substr(first, size));
  });
  return Stops(checkpoint) || digest.Hex() == tensor.digest;
}

absl::StatusOr<bool> DecodeJob::DecodeByMany(TensorDecoder* decoder,
                                             Checkpoint* checkpoint) {
  const size_t pieces =
      use_ == Use::kGiveBack ? decoder->Cut(payload_, kPiece) : 0;
  const bool shares = tensor_.codec.codec->shares_blocks();
  // Steps compute the digest themselves.
  const bool whole =
      (pieces > 0 || shares) && HasDigest(tensor_, payload_, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (whole && pieces > 0) {
    pieces_ = pieces;
    return true;
  }
  decoded_ = spares_->made.Take();
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(tensor_.spec));
  Reserve(elements * DTypeSize(tensor_.spec.dtype), &decoded_);
  if (!whole || !shares) return false;
  return decoder->DecodeWhole(payload_, queue_, checkpoint, &decoded_);
}

absl::Status DecodeJob::Decode(Checkpoint* checkpoint) {
  KVC_ASSIGN_OR_RETURN(std::unique_ptr<TensorDecoder> decoder,
                       NewDecoderOf(tensor_, group_.get(), index_, checkpoint));
  std::optional<TokenFilter> filter;
  if (use_ == Use::kSkip) {
    decoder->set_needed([](uint64_t, uint64_t) { return false; });
  } else if (gives() && tokens_) {
    filter.emplace(tensor_.spec, *tokens_);
    decoder->set_needed([&filter](uint64_t begin, uint64_t end) {
      return filter->Overlaps(begin, end);
    });
  }
  const bool direct = gives() && !filter;
  if (filter) decoded_ = spares_->made.Take();
  if (direct) {
    KVC_ASSIGN_OR_RETURN(const bool done,
                         DecodeByMany(decoder.get(), checkpoint));
    if (pieces_ > 0) decoder_ = std::move(decoder);
    if (done) return pieces_ > 0 ? absl::OkStatus() : decoder->Finish();
  }
  std::string scratch;
  std::string* const out = direct ? &decoded_ : &scratch;
  Digest digest;
  absl::string_view left = payload_;
  StepRoom room(kSlice);
  for (bool more = true; more;) {
    if (Stops(checkpoint)) return checkpoint->status();
    scratch.clear();
    const absl::string_view before = left;
    const size_t size = out->size();
    KVC_ASSIGN_OR_RETURN(more,
                         decoder->Decode(&left, size + room.bytes(), out));
    room.Step(left.size() < before.size() || out->size() > size);
    digest.Update(before.substr(0, before.size() - left.size()));
    if (filter) filter->Append(scratch, &decoded_);
  }
  if (digest.Hex() != tensor_.digest) return DigestMismatch(tensor_, offset_);
  return decoder->Finish();
}

}  // namespace kvcompress
