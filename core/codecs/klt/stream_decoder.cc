// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/stream_decoder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "codecs/klt/block_decoder.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "coding/stream_decoder.h"
#include "entropy/rans.h"
#include "kvcompress/error.h"
#include "quantization/rope.h"
#include "status/macros.h"
#include "transform/basis.h"
#include "transform/layout.h"

namespace kvcompress::klt {
namespace {

absl::Span<const uint8_t> AsBytes(absl::string_view bytes) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                             bytes.size());
}

class StreamDecoder : public TensorDecoder {
 public:
  StreamDecoder(const TensorSpec& spec, uint64_t elements)
      : spec_(spec), elements_(elements), geometry_(spec) {}

  absl::StatusOr<bool> Decode(absl::string_view* payload, size_t most,
                              std::string* decoded) override {
    // Bytes that this call has decoded to output_.
    for (size_t work = 0; other_ == nullptr;) {
      if (!Give(most, decoded) || work >= most) return true;
      if (payload->empty()) return false;
      if (done()) return Damaged("bytes follow the end of the payload");
      const absl::string_view part =
          payload->substr(0, wanted_ - pending_.size());
      pending_.append(part.data(), part.size());
      payload->remove_prefix(part.size());
      if (pending_.size() < wanted_) return false;
      KVC_RETURN_IF_ERROR(TakePart(&work));
    }
    return other_->Decode(payload, most, decoded);
  }

  absl::Status Finish() override {
    if (other_ != nullptr) return other_->Finish();
    if (!done()) return Damaged("the payload is incomplete");
    return absl::OkStatus();
  }

 private:
  bool done() const {
    return elements_ == 0 || (header_ && head_part_ == geometry_.head_parts());
  }

  // Gives what is whole of the output, as far as there is room. False when some
  // of it is left.
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

  // Advances when pending_ has wanted_ bytes: to more of them, or to the next
  // part. Counts in `*work` the bytes that it decodes.
  absl::Status TakePart(size_t* work) {
    const absl::Span<const uint8_t> bytes = AsBytes(pending_);
    if (!header_) return TakeHeader(bytes);
    const Block block = geometry_.block(head_part_, token_part_);
    if (bytes.size() == kBlockHeaderSize) {
      const std::optional<BlockHeader> sizes =
          ReadBlockHeader(bytes, geometry_.Elements(block));
      if (!sizes) return Damaged("the header of a block breaks a rule");
      wanted_ = sizes->size;
      return absl::OkStatus();
    }
    KVC_RETURN_IF_ERROR(TakeBlock(block, bytes));
    *work += geometry_.Elements(block) * DTypeSize(spec_.dtype);
    pending_.clear();
    wanted_ = kBlockHeaderSize;
    if (++token_part_ == geometry_.token_parts()) {
      bases_.clear();
      whole_ = true;
      token_part_ = 0;
      ++head_part_;
    }
    return absl::OkStatus();
  }

  absl::Status TakeHeader(absl::Span<const uint8_t> bytes) {
    if (bytes[0] != kModeJoint) {
      other_ = coding::NewStreamDecoder(spec_, elements_);
      other_->set_needed([this](uint64_t begin, uint64_t end) {
        return IsNeeded(begin, end);
      });
      // The mode alone gives no output.
      absl::string_view mode = pending_;
      std::string none;
      return other_->Decode(&mode, kMaxDecodedBlock, &none).status();
    }
    const size_t size = bytes.size() < kTensorHeaderSize
                            ? kTensorHeaderSize
                            : TensorHeaderSize(bytes);
    if (bytes.size() < size) {
      wanted_ = size;
      return absl::OkStatus();
    }
    header_ = ReadTensorHeader(bytes, geometry_);
    if (!header_) return Damaged("the header of the payload breaks a rule");
    pending_.clear();
    pending_.reserve(MaxBlockSize(geometry_.Elements(geometry_.block(0, 0))));
    wanted_ = kBlockHeaderSize;
    return absl::OkStatus();
  }

  absl::Status TakeBlock(const Block& block, absl::Span<const uint8_t> bytes) {
    const size_t row_size = geometry_.channels() * DTypeSize(spec_.dtype);
    const uint64_t first =
        block.first_head * geometry_.tokens() * geometry_.channels();
    output_.resize(block.heads * geometry_.tokens() * row_size);
    bool needed = false;
    bool later_needed = false;  // may have the bases of this one
    for (size_t h = 0; h < block.heads; ++h) {
      const uint64_t begin = geometry_.RowBegin(block, h * block.tokens);
      const uint64_t end = begin + block.tokens * geometry_.channels();
      const uint64_t head_end = (block.first_head + h + 1) *
                                geometry_.tokens() * geometry_.channels();
      needed |= IsNeeded(begin, end);
      later_needed |= end < head_end && IsNeeded(end, head_end);
    }
    if (!needed && !later_needed) return absl::OkStatus();
    uint8_t* const out =
        reinterpret_cast<uint8_t*>(output_.data()) +
        (geometry_.RowBegin(block, 0) - first) * DTypeSize(spec_.dtype);
    if (!DecodeBlock(*header_, geometry_, block, spec_.dtype, bytes, &bases_,
                     &memory_, geometry_.tokens() * geometry_.channels(),
                     needed ? out : nullptr)) {
      return Damaged("a block breaks the format");
    }
    return absl::OkStatus();
  }

  absl::Status Damaged(absl::string_view message) const {
    return MakeError(absl::StatusCode::kDataLoss, message,
                     {.reason = "PAYLOAD_DAMAGED", .tensor = spec_.name});
  }

  const TensorSpec spec_;
  const uint64_t elements_;
  const Geometry geometry_;
  // A part that is not whole yet, and how long it must become.
  std::string pending_;
  size_t wanted_ = 1;
  std::optional<TensorHeader> header_;
  uint64_t head_part_ = 0;
  uint64_t token_part_ = 0;
  std::string output_;                 // of the heads of a part
  bool whole_ = false;                 // whether it has all their tokens
  size_t given_ = 0;                   // bytes of it that were taken
  std::vector<coding::Matrix> bases_;  // of the groups of the block before
  DecoderMemory memory_;
  // Decodes the modes that are those of ecsq.
  std::unique_ptr<TensorDecoder> other_;
};

}  // namespace

std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements) {
  return std::make_unique<StreamDecoder>(spec, elements);
}

// The output of a part of the heads; a block that is not whole yet; its levels,
// symbols and bases, with the one that is prepared; sines and cosines. Or what
// a mode of ecsq takes. The first part and the first block are the largest, but
// symbols grow after a block with sinks, to at most twice as many.
DecoderBounds BoundsOfStreamDecoder(const TensorSpec& spec, uint64_t elements) {
  DecoderBounds bounds = coding::BoundsOfStreamDecoder(spec, elements);
  const Geometry geometry(spec);
  if (!geometry.codable()) return bounds;
  const Block block = geometry.block(0, 0);
  const uint64_t coded = geometry.Elements(block);
  const uint64_t channels = geometry.channels();
  const uint64_t matrix = coding::RoundUp(geometry.GroupSize(block, 0), 2) *
                          geometry.GroupSize(block, 0) * sizeof(int16_t);
  bounds.memory = std::max(
      bounds.memory,
      block.heads * geometry.tokens() * channels * DTypeSize(spec.dtype) +
          MaxBlockSize(coded) + coded * sizeof(int32_t) +
          2 * block.tokens * coding::kMaxLanes +
          (geometry.Groups(block) + 1) * matrix +
          coding::Rotator::MaxMemory(geometry.tokens(), channels,
                                     block.tokens));
  return bounds;
}

}  // namespace kvcompress::klt
