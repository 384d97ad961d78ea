// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/stream_decoder.h"

#include <optional>
#include <string>
#include <vector>

#include "codecs/ecsq/stream.h"
#include "codecs/klt/basis.h"
#include "codecs/klt/block_decoder.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "kvcompress/error.h"
#include "status/macros.h"

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

  absl::Status Append(absl::string_view payload,
                      std::string* decoded) override {
    while (other_ == nullptr && !payload.empty()) {
      if (done()) return Damaged("bytes follow the end of the payload");
      const absl::string_view part =
          payload.substr(0, wanted_ - pending_.size());
      pending_.append(part.data(), part.size());
      payload.remove_prefix(part.size());
      if (pending_.size() < wanted_) break;
      KVC_RETURN_IF_ERROR(TakePart(decoded));
    }
    return other_ == nullptr ? absl::OkStatus()
                             : other_->Append(payload, decoded);
  }

  absl::Status Finish(std::string* decoded) override {
    if (other_ != nullptr) return other_->Finish(decoded);
    if (!done()) return Damaged("the payload is incomplete");
    return absl::OkStatus();
  }

 private:
  bool done() const {
    return elements_ == 0 || (header_ && head_part_ == geometry_.head_parts());
  }

  // Advances when pending_ has wanted_ bytes: to more of them, or to the next
  // part.
  absl::Status TakePart(std::string* decoded) {
    const absl::Span<const uint8_t> bytes = AsBytes(pending_);
    if (!header_) return TakeHeader(bytes, decoded);
    const Block block = geometry_.block(head_part_, token_part_);
    if (bytes.size() == kBlockHeaderSize) {
      const std::optional<BlockHeader> sizes =
          ReadBlockHeader(bytes, geometry_.Elements(block));
      if (!sizes) return Damaged("the header of a block breaks a rule");
      wanted_ = sizes->size;
      return absl::OkStatus();
    }
    KVC_RETURN_IF_ERROR(TakeBlock(block, bytes));
    pending_.clear();
    wanted_ = kBlockHeaderSize;
    if (++token_part_ == geometry_.token_parts()) {
      bases_.clear();
      if (decoded->empty()) {
        decoded->swap(output_);
      } else {
        decoded->append(output_);
      }
      output_.clear();
      token_part_ = 0;
      ++head_part_;
    }
    return absl::OkStatus();
  }

  absl::Status TakeHeader(absl::Span<const uint8_t> bytes,
                          std::string* decoded) {
    if (bytes[0] != kModeJoint) {
      other_ = ecsq::NewStreamDecoder(spec_, elements_);
      other_->set_needed([this](uint64_t begin, uint64_t end) {
        return IsNeeded(begin, end);
      });
      return other_->Append(pending_, decoded);
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
  std::string output_;         // of the heads of a part
  std::vector<Matrix> bases_;  // of the groups of the block before
  DecoderMemory memory_;
  // Decodes the modes that are those of ecsq.
  std::unique_ptr<TensorDecoder> other_;
};

}  // namespace

std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements) {
  return std::make_unique<StreamDecoder>(spec, elements);
}

}  // namespace kvcompress::klt
