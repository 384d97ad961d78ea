// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/stream_decoder.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coding/whole_payload.h"
#include "quantization/int8.h"
#include "status/macros.h"
#include "tensor/block_stream.h"
#include "tensor/slabs.h"

namespace kvcompress::coding {
namespace {

class StreamDecoder : public TensorDecoder {
 public:
  StreamDecoder(const TensorSpec& spec, uint64_t elements,
                NewBlockDecoder modes)
      : spec_(spec),
        modes_(modes),
        elements_(elements),
        elements_left_(elements) {}

  absl::StatusOr<bool> DecodeStep(absl::string_view* payload, size_t most,
                                  std::string* decoded) override {
    // Bytes that this call has decoded to output_.
    for (size_t work = 0;;) {
      if (!Give(most, decoded) || (work > 0 && work >= most)) return true;
      if (payload->empty()) return false;
      if (elements_left_ == 0) {
        return Damaged("bytes follow the end of the payload");
      }
      if (!collects_heads() &&
          !Fits(due_ * DTypeSize(spec_.dtype), most, *decoded)) {
        return true;
      }
      KVC_RETURN_IF_ERROR(integers_ ? TakeIntegers(payload, decoded)
                                    : TakePayload(payload, &work, decoded));
    }
  }

  absl::StatusOr<bool> DecodeWhole(absl::string_view payload, Workers* workers,
                                   Checkpoint* checkpoint,
                                   std::string* decoded) override {
    if (!needs_all()) return false;
    const std::unique_ptr<WholePayload> whole =
        WholePayload::Read(spec_, elements_, modes_, payload);
    if (whole == nullptr || !whole->has_blocks()) return false;
    ResizeInSlabs(checkpoint, elements_ * DTypeSize(spec_.dtype), decoded);
    const bool done = whole->DecodeBlocks(
        workers, checkpoint, reinterpret_cast<uint8_t*>(decoded->data()));
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
    if (done) {
      elements_left_ = 0;
    } else {
      decoded->clear();
    }
    return done;
  }

  size_t Cut(absl::string_view payload, size_t size) override {
    if (!needs_all()) return 0;
    whole_payload_ = WholePayload::Read(spec_, elements_, modes_, payload);
    const size_t pieces =
        whole_payload_ == nullptr ? 0 : whole_payload_->Cut(size);
    if (pieces == 0) whole_payload_.reset();
    return pieces;
  }
  uint64_t PieceBegin(size_t index) const override {
    return whole_payload_->PieceBegin(index);
  }
  absl::Status DecodePiece(size_t index, std::string* decoded) const override {
    return whole_payload_->DecodePiece(index, decoded);
  }

  absl::Status Finish() override {
    if (elements_left_ != 0 || !pending_.empty()) {
      return Damaged(absl::StrCat("the payload is incomplete: ", elements_left_,
                                  " of ", elements_, " elements are missing"));
    }
    return absl::OkStatus();
  }

 private:
  bool collects_heads() const { return blocks_ && blocks_->collects_heads(); }

  // Moves the complete output to `decoded`; returns false if some remains.
  bool Give(size_t most, std::string* decoded) {
    if (!whole_) return true;
    const size_t room = most > decoded->size() ? most - decoded->size() : 0;
    const size_t size = std::min(room, output_.size() - given_);
    decoded->append(output_, given_, size);
    given_ += size;
    if (given_ < output_.size()) return false;
    output_.clear();
    whole_ = false;
    given_ = 0;
    return true;
  }

  // Takes what a part still wants, and decodes it once it is whole. Adds the
  // bytes that it decodes to output_ to `*work`.
  absl::Status TakePayload(absl::string_view* payload, size_t* work,
                           std::string* decoded) {
    const absl::string_view part =
        payload->substr(0, wanted_ - pending_.size());
    pending_.append(part.data(), part.size());
    payload->remove_prefix(part.size());
    if (pending_.size() < wanted_) return absl::OkStatus();
    if (!header_) return TakeHeader();
    return TakeBlock(work, decoded);
  }

  // Advances when pending_ has wanted_ bytes of the tensor header: to more of
  // them, or to the first block.
  absl::Status TakeHeader() {
    const absl::Span<const uint8_t> bytes = AsBytes(pending_);
    if (bytes[0] == kModeInt8) {
      integers_.emplace(Int8Size(elements_), Int8Size(kInt8BlockElements));
      pending_.clear();
      due_ = std::min<uint64_t>(elements_, kInt8BlockElements);
      return absl::OkStatus();
    }
    if (blocks_ == nullptr) {
      blocks_ = modes_(bytes[0], spec_);
      if (blocks_ == nullptr) {
        return Damaged(
            absl::StrCat("the codec has no mode ", bytes[0],
                         ", which is the first byte of the payload"));
      }
    }
    const size_t size = bytes.size() < kTensorHeaderSize
                            ? kTensorHeaderSize
                            : TensorHeaderSize(bytes);
    if (bytes.size() < size) return Want(size);
    absl::StatusOr<TensorHeader> header =
        ReadTensorHeader(bytes, blocks_->geometry());
    if (!header.ok()) return Damaged(header.status().message());
    header_ = *std::move(header);
    return NextBlock(size);
  }

  // The same of a block: to the rest of it, or to the next.
  absl::Status TakeBlock(size_t* work, std::string* decoded) {
    const absl::Span<const uint8_t> bytes = AsBytes(pending_);
    if (bytes.size() == BlockHeaderSize(header_->mode)) {
      const absl::StatusOr<BlockHeader> sizes =
          ReadBlockHeader(header_->mode, bytes, due_);
      if (!sizes.ok()) return DamagedBlock(sizes.status());
      return Want(sizes->size);
    }
    const Geometry& geometry = blocks_->geometry();
    const absl::Status status = blocks_->Decode(
        *header_, geometry.block(block_), bytes,
        [this](uint64_t begin, uint64_t end) { return IsNeeded(begin, end); },
        collects_heads() ? &output_ : decoded);
    if (!status.ok()) return DamagedBlock(status);
    elements_left_ -= due_;
    ++block_;
    if (collects_heads()) {
      *work += due_ * DTypeSize(spec_.dtype);
      whole_ = block_ % geometry.token_parts() == 0;
    }
    return NextBlock(bytes.size());
  }

  // `size` bytes of the payload are done.
  absl::Status NextBlock(size_t size) {
    const bool first = position_ == 0;
    position_ += size;
    pending_.clear();
    if (elements_left_ > 0) {
      const Geometry& geometry = blocks_->geometry();
      due_ = geometry.Elements(geometry.block(block_));
      // Once: the first block is the largest.
      if (first) pending_.reserve(MaxBlockSize(due_));
    }
    return Want(BlockHeaderSize(header_->mode));
  }

  absl::Status Want(size_t size) {
    wanted_ = size;
    return absl::OkStatus();
  }

  absl::Status TakeIntegers(absl::string_view* payload, std::string* decoded) {
    const absl::string_view run = integers_->Next(payload);
    if (run.empty()) return absl::OkStatus();
    const uint64_t first = elements_ - elements_left_;
    const size_t begin = decoded->size();
    decoded->resize(begin + due_ * DTypeSize(spec_.dtype));
    if (IsNeeded(first, first + due_)) {
      KVC_RETURN_IF_ERROR(
          DecodeIntegers(spec_, run, first, due_,
                         reinterpret_cast<uint8_t*>(decoded->data() + begin)));
    }
    elements_left_ -= due_;
    due_ = std::min<uint64_t>(elements_left_, kInt8BlockElements);
    return absl::OkStatus();
  }

  absl::Status DamagedBlock(const absl::Status& status) const {
    return coding::DamagedBlock(spec_, blocks_->geometry(), block_, position_,
                                status);
  }

  absl::Status Damaged(absl::string_view message) const {
    return DamagedPayload(spec_, message);
  }

  const TensorSpec spec_;
  const NewBlockDecoder modes_;
  const uint64_t elements_;
  uint64_t elements_left_;  // of what is not decoded
  // A part that is not whole yet, and how long it must become.
  std::string pending_;
  size_t wanted_ = 1;
  uint64_t position_ = 0;  // of that part in the payload
  std::unique_ptr<BlockDecoder> blocks_;
  std::optional<TensorHeader> header_;
  uint64_t block_ = 0;
  size_t due_ = 0;      // elements that come next
  std::string output_;  // of a part of the heads
  bool whole_ = false;  // whether it has all their tokens
  size_t given_ = 0;    // bytes of it that were taken
  std::optional<BlockStream> integers_;
  std::unique_ptr<WholePayload> whole_payload_;  // where it was cut
};

}  // namespace

std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements,
                                                NewBlockDecoder modes) {
  return std::make_unique<StreamDecoder>(spec, elements, modes);
}

}  // namespace kvcompress::coding
