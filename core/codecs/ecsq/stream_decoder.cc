// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <optional>
#include <string>

#include "codecs/block_stream.h"
#include "codecs/ecsq/block_decoder.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/geometry.h"
#include "codecs/ecsq/int8_fallback.h"
#include "codecs/ecsq/rope.h"
#include "codecs/ecsq/stream.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress::ecsq {
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

  absl::Status Append(absl::string_view payload,
                      std::string* decoded) override {
    if (!integers_) {
      KVC_RETURN_IF_ERROR(Collect(&payload, decoded));
    }
    if (!integers_) return absl::OkStatus();
    return AppendIntegers(payload, decoded);
  }

  absl::Status Finish(std::string*) override {
    if (elements_left_ != 0 || !pending_.empty()) {
      return Damaged("the payload is incomplete");
    }
    return absl::OkStatus();
  }

 private:
  // Takes coded parts as they become whole, until none is left or the payload
  // turns out to be integers.
  absl::Status Collect(absl::string_view* payload, std::string* decoded) {
    while (!payload->empty()) {
      if (elements_left_ == 0) {
        return Damaged("bytes follow the end of the payload");
      }
      const absl::string_view part =
          payload->substr(0, wanted_ - pending_.size());
      pending_.append(part.data(), part.size());
      payload->remove_prefix(part.size());
      if (pending_.size() < wanted_) break;
      KVC_RETURN_IF_ERROR(TakePart(payload->size(), decoded));
      if (integers_) break;
    }
    return absl::OkStatus();
  }

  // Advances when pending_ has wanted_ bytes: to more of them, or to the next
  // part. So many bytes of the payload follow.
  absl::Status TakePart(size_t following, std::string* decoded) {
    const absl::Span<const uint8_t> bytes = AsBytes(pending_);
    if (!header_) {
      if (bytes[0] == kModeInt8) {
        integers_.emplace(Int8Size(elements_left_),
                          Int8Size(kInt8BlockElements));
        pending_.clear();
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
    const Block block = geometry_.block(block_);
    const size_t elements = geometry_.Elements(block);
    if (bytes.size() == kBlockHeaderSize) {
      const std::optional<BlockHeader> sizes = ReadBlockHeader(bytes, elements);
      if (!sizes || sizes->size == kBlockHeaderSize) {
        return Damaged("the header of a block breaks a rule");
      }
      return Want(sizes->size);
    }
    Reserve(elements, bytes.size(), following, decoded);
    if (!TakeElements(elements)) {
      decoded->resize(decoded->size() + elements * DTypeSize(dtype_));
    } else if (!DecodeBlock(*header_, geometry_, block, dtype_, bytes,
                            &rotator_, &buffers_, decoded)) {
      return Damaged("a block breaks the format");
    }
    ++block_;
    return NextPart();
  }

  // Makes room for a block and for those in the bytes that follow, if they are
  // alike; but not for more than those bytes make likely.
  void Reserve(size_t elements, size_t size, size_t following,
               std::string* decoded) const {
    constexpr uint64_t kMostRatio = 64;
    const uint64_t likely =
        elements * (following / size) + elements * (following / size) / 16;
    const uint64_t others =
        std::min<uint64_t>(elements_left_ - elements, likely) *
        DTypeSize(dtype_);
    const uint64_t wanted = decoded->size() + elements * DTypeSize(dtype_) +
                            std::min(others, kMostRatio * following);
    if (wanted > decoded->capacity()) decoded->reserve(wanted);
  }

  absl::Status Want(size_t size) {
    wanted_ = size;
    return absl::OkStatus();
  }

  absl::Status NextPart() {
    pending_.clear();
    return Want(kBlockHeaderSize);
  }

  absl::Status AppendIntegers(absl::string_view payload, std::string* decoded) {
    if (elements_left_ == 0 && !payload.empty()) {
      return Damaged("bytes follow the end of the payload");
    }
    return integers_->Append(payload, [&](absl::string_view block) {
      const size_t elements =
          std::min<uint64_t>(elements_left_, kInt8BlockElements);
      const size_t begin = decoded->size();
      decoded->resize(begin + elements * DTypeSize(dtype_));
      if (TakeElements(elements) &&
          !DecodeInt8(dtype_, AsBytes(block), elements,
                      reinterpret_cast<uint8_t*>(decoded->data() + begin))) {
        return Damaged("the payload breaks the format");
      }
      return absl::OkStatus();
    });
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
  Rotator rotator_;
  DecoderBuffers buffers_;
  std::optional<BlockStream> integers_;
};

}  // namespace

std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements) {
  return std::make_unique<StreamDecoder>(spec, elements);
}

}  // namespace kvcompress::ecsq
