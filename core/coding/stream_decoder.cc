// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/stream_decoder.h"

#include <algorithm>
#include <optional>
#include <string>

#include "codecs/block_stream.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "coding/identity/block_decoder.h"
#include "kvcompress/error.h"
#include "quantization/int8.h"
#include "quantization/rope.h"
#include "status/macros.h"

namespace kvcompress::coding {
namespace {

absl::Span<const uint8_t> AsBytes(absl::string_view bytes) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                             bytes.size());
}

class StreamDecoder : public TensorDecoder {
 public:
  StreamDecoder(const TensorSpec& spec, uint64_t elements)
      : name_(spec.name),
        dtype_(spec.dtype),
        geometry_(spec),
        elements_(elements),
        elements_left_(elements) {}

  absl::StatusOr<bool> Decode(absl::string_view* payload, size_t most,
                              std::string* decoded) override {
    while (!payload->empty()) {
      if (elements_left_ == 0) {
        return Damaged("bytes follow the end of the payload");
      }
      if (!Fits(due_ * DTypeSize(dtype_), most, *decoded)) return true;
      KVC_RETURN_IF_ERROR(integers_ ? TakeIntegers(payload, decoded)
                                    : TakePayload(payload, decoded));
    }
    return false;
  }

  absl::Status Finish() override {
    if (elements_left_ != 0 || !pending_.empty()) {
      return Damaged("the payload is incomplete");
    }
    return absl::OkStatus();
  }

 private:
  // Takes what a part still wants, and decodes it once it is whole.
  absl::Status TakePayload(absl::string_view* payload, std::string* decoded) {
    const absl::string_view part =
        payload->substr(0, wanted_ - pending_.size());
    pending_.append(part.data(), part.size());
    payload->remove_prefix(part.size());
    return pending_.size() < wanted_ ? absl::OkStatus() : TakePart(decoded);
  }

  // Advances when pending_ has wanted_ bytes: to more of them, or to the next
  // part.
  absl::Status TakePart(std::string* decoded) {
    const absl::Span<const uint8_t> bytes = AsBytes(pending_);
    if (!header_) {
      if (bytes[0] == kModeInt8) {
        integers_.emplace(Int8Size(elements_left_),
                          Int8Size(kInt8BlockElements));
        pending_.clear();
        due_ = std::min<uint64_t>(elements_left_, kInt8BlockElements);
        return absl::OkStatus();
      }
      if (bytes.size() < kTensorHeaderSize) return Want(kTensorHeaderSize);
      if (bytes.size() < TensorHeaderSize(bytes)) {
        return Want(TensorHeaderSize(bytes));
      }
      header_ = ReadTensorHeader(bytes, geometry_);
      if (!header_) return Damaged("the header of the payload breaks a rule");
      return NextPart();
    }
    if (bytes.size() == kBlockHeaderSize) {
      const std::optional<BlockHeader> sizes = ReadBlockHeader(bytes, due_);
      if (!sizes || sizes->size == kBlockHeaderSize) {
        return Damaged("the header of a block breaks a rule");
      }
      return Want(sizes->size);
    }
    if (!TakeElements(due_)) {
      decoded->resize(decoded->size() + due_ * DTypeSize(dtype_));
    } else if (!DecodeBlock(*header_, geometry_, geometry_.block(block_),
                            dtype_, bytes, &rotator_, &buffers_, decoded)) {
      return Damaged("a block breaks the format");
    }
    ++block_;
    return NextPart();
  }

  absl::Status Want(size_t size) {
    wanted_ = size;
    return absl::OkStatus();
  }

  absl::Status NextPart() {
    pending_.clear();
    if (elements_left_ > 0) {
      due_ = geometry_.Elements(geometry_.block(block_));
      // Once: the first block is the largest.
      pending_.reserve(MaxBlockSize(due_));
    }
    return Want(kBlockHeaderSize);
  }

  absl::Status TakeIntegers(absl::string_view* payload, std::string* decoded) {
    const absl::string_view block = integers_->Next(payload);
    if (block.empty()) return absl::OkStatus();
    const size_t begin = decoded->size();
    decoded->resize(begin + due_ * DTypeSize(dtype_));
    if (TakeElements(due_) &&
        !DecodeInt8(dtype_, AsBytes(block), due_,
                    reinterpret_cast<uint8_t*>(decoded->data() + begin))) {
      return Damaged("the payload breaks the format");
    }
    due_ = std::min<uint64_t>(elements_left_, kInt8BlockElements);
    return absl::OkStatus();
  }

  // Counts the next elements as done; says whether they are needed.
  bool TakeElements(size_t count) {
    const uint64_t begin = elements_ - elements_left_;
    elements_left_ -= count;
    return IsNeeded(begin, begin + count);
  }

  absl::Status Damaged(absl::string_view message) const {
    return MakeError(absl::StatusCode::kDataLoss, message,
                     {.reason = "PAYLOAD_DAMAGED", .tensor = name_});
  }

  const std::string name_;
  const DType dtype_;
  const Geometry geometry_;
  const uint64_t elements_;
  uint64_t elements_left_;
  // A part that is not whole yet, and how long it must become.
  std::string pending_;
  size_t wanted_ = 1;
  std::optional<TensorHeader> header_;
  uint64_t block_ = 0;
  size_t due_ = 0;  // elements of the block that comes next
  Rotator rotator_;
  DecoderBuffers buffers_;
  std::optional<BlockStream> integers_;
};

}  // namespace

std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements) {
  return std::make_unique<StreamDecoder>(spec, elements);
}

// A block that is not whole yet, the sines and cosines of its tokens, and what
// it is decoded in. The first block is the largest.
DecoderBounds BoundsOfStreamDecoder(const TensorSpec& spec, uint64_t elements) {
  if (elements == 0) return {};
  const uint64_t integers = std::min<uint64_t>(elements, kInt8BlockElements);
  DecoderBounds bounds = {.block = integers, .memory = Int8Size(integers)};
  const Geometry geometry(spec);
  if (geometry.codable()) {
    const Block block = geometry.block(0);
    const uint64_t coded = geometry.Elements(block);
    bounds.block = std::max(bounds.block, coded);
    bounds.memory = MaxBlockSize(coded) + BuffersSize(geometry, block) +
                    Rotator::MaxMemory(geometry.tokens(), geometry.channels(),
                                       block.tokens);
  }
  bounds.block *= DTypeSize(spec.dtype);
  return bounds;
}

}  // namespace kvcompress::coding
