// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/block_codec.h"

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "status/macros.h"
#include "tensor/block_stream.h"
#include "tensor/not_finite.h"

namespace kvcompress {
namespace {

using kernels::EncodeFault;

const uint8_t* Bytes(absl::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

// Makes space for `size` bytes more.
uint8_t* Extend(std::string* text, size_t size) {
  const size_t begin = text->size();
  text->resize(begin + size);
  return reinterpret_cast<uint8_t*>(text->data() + begin);
}

BlockScheme::Sizes FirstBlock(const BlockTensor& tensor) {
  return tensor.elements == 0 ? BlockScheme::Sizes() : tensor.scheme->At(0);
}

class Encoder : public TensorEncoder {
 public:
  explicit Encoder(BlockTensor tensor)
      : tensor_(std::move(tensor)),
        element_size_(DTypeSize(tensor_.dtype)),
        sizes_(FirstBlock(tensor_)),
        blocks_(tensor_.elements * element_size_,
                sizes_.elements * element_size_) {}

  absl::Status Append(absl::string_view bytes, std::string* payload,
                      std::string* decoded) override {
    return blocks_.Append(bytes, [&](absl::string_view block) {
      return EncodeBlock(block, payload, decoded);
    });
  }

  absl::Status Finish(std::string*, std::string*) override {
    if (blocks_.done()) return absl::OkStatus();
    return MakeError(absl::StatusCode::kInternal, "the tensor is incomplete",
                     {.reason = "INTERNAL", .tensor = tensor_.name});
  }

  const DistortionAccumulator& distortion() const override {
    return distortion_;
  }

 private:
  absl::Status EncodeBlock(absl::string_view block, std::string* payload,
                           std::string* decoded) {
    uint8_t* const restored =
        decoded == nullptr ? nullptr : Extend(decoded, block.size());
    DistortionSums sums;
    const EncodeFault fault = tensor_.scheme->Encode(
        element_, Bytes(block), Extend(payload, sizes_.payload), restored,
        &sums);
    if (fault.kind != EncodeFault::Kind::kNone) return Refuse(fault);
    distortion_.Add(sums);
    element_ += sizes_.elements;
    if (element_ < tensor_.elements) {
      sizes_ = tensor_.scheme->At(element_);
      blocks_.set_block_size(sizes_.elements * element_size_);
    }
    return absl::OkStatus();
  }

  absl::Status Refuse(const EncodeFault& fault) const {
    const uint64_t element = element_ + fault.element;
    if (fault.kind == EncodeFault::Kind::kNotFinite) {
      return NotFiniteError(tensor_.codec, tensor_.name, element);
    }
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("the value is too large for ", tensor_.codec,
                     ": it exceeds the range of its group's scale"),
        {.reason = "SCALE_OVERFLOW",
         .tensor = tensor_.name,
         .element = element});
  }

  const BlockTensor tensor_;
  const size_t element_size_;
  BlockScheme::Sizes sizes_;  // of the block that is due
  BlockStream blocks_;
  uint64_t element_ = 0;
  DistortionAccumulator distortion_;
};

// The tensor in the terms of a scheme of its own, which returned it before.
using NewTensor = std::function<absl::StatusOr<BlockTensor>()>;

class Decoder : public TensorDecoder {
 public:
  Decoder(BlockTensor tensor, NewTensor another)
      : tensor_(std::move(tensor)),
        another_(std::move(another)),
        sizes_(FirstBlock(tensor_)),
        blocks_(tensor_.payload_size, sizes_.payload) {}

  absl::StatusOr<bool> DecodeStep(absl::string_view* payload, size_t most,
                                  std::string* decoded) override {
    while (!payload->empty()) {
      if (blocks_.done()) return Damaged("bytes follow the end of the payload");
      if (!Fits(BlockBytes(sizes_), most, *decoded)) return true;
      const absl::string_view block = blocks_.Next(payload);
      if (block.empty()) break;
      KVC_RETURN_IF_ERROR(TakeBlock(block, decoded));
    }
    return false;
  }

  size_t Cut(absl::string_view payload, size_t size) override {
    if (!needs_all() || payload.size() != tensor_.payload_size) return 0;
    uint64_t offset = 0;
    for (uint64_t element = 0; element < tensor_.elements;) {
      const BlockScheme::Sizes sizes = tensor_.scheme->At(element);
      const uint64_t end = element + sizes.elements;
      const uint64_t begin = pieces_.empty() ? 0 : pieces_.back().element;
      if (element == 0 || (end - begin) * DTypeSize(tensor_.dtype) > size) {
        pieces_.push_back({element, payload.substr(offset)});
      }
      element = end;
      offset += sizes.payload;
    }
    return pieces_.size();
  }

  uint64_t PieceBegin(size_t index) const override {
    return pieces_[index].element;
  }
  absl::Status DecodePiece(size_t index, std::string* decoded) const override {
    KVC_ASSIGN_OR_RETURN(const BlockTensor tensor, another_());
    const uint64_t end = index + 1 < pieces_.size() ? pieces_[index + 1].element
                                                    : tensor_.elements;
    absl::string_view payload = pieces_[index].payload;
    for (uint64_t element = pieces_[index].element; element < end;) {
      const BlockScheme::Sizes sizes = tensor.scheme->At(element);
      KVC_RETURN_IF_ERROR(DecodeBlock(tensor.scheme.get(), element, payload,
                                      Extend(decoded, BlockBytes(sizes))));
      payload.remove_prefix(sizes.payload);
      element += sizes.elements;
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (blocks_.done()) return absl::OkStatus();
    return Damaged("the payload is incomplete");
  }

 private:
  struct Piece {
    uint64_t element = 0;       // the first
    absl::string_view payload;  // from its own on
  };

  absl::Status DecodeBlock(BlockScheme* scheme, uint64_t element,
                           absl::string_view block, uint8_t* restored) const {
    const absl::Status status = scheme->Decode(element, Bytes(block), restored);
    if (status.ok()) return status;
    return Damaged(absl::StrCat("the ", tensor_.codec, " block of element ",
                                element, ": ", status.message()));
  }

  absl::Status TakeBlock(absl::string_view block, std::string* decoded) {
    uint8_t* const restored = Extend(decoded, BlockBytes(sizes_));
    if (IsNeeded(element_, element_ + sizes_.elements)) {
      KVC_RETURN_IF_ERROR(
          DecodeBlock(tensor_.scheme.get(), element_, block, restored));
    }
    element_ += sizes_.elements;
    if (element_ < tensor_.elements) {
      sizes_ = tensor_.scheme->At(element_);
      blocks_.set_block_size(sizes_.payload);
    }
    return absl::OkStatus();
  }

  // Of a block, decoded.
  size_t BlockBytes(const BlockScheme::Sizes& sizes) const {
    return sizes.elements * DTypeSize(tensor_.dtype);
  }

  absl::Status Damaged(absl::string_view message) const {
    return MakeError(absl::StatusCode::kDataLoss, message,
                     {.reason = "PAYLOAD_DAMAGED", .tensor = tensor_.name});
  }

  const BlockTensor tensor_;
  const NewTensor another_;
  BlockScheme::Sizes sizes_;  // of the block that is due
  BlockStream blocks_;
  uint64_t element_ = 0;
  std::vector<Piece> pieces_;  // where it was cut
};

}  // namespace

absl::StatusOr<std::unique_ptr<TensorEncoder>> BlockCodec::NewEncoder(
    const TensorSpec& spec, const CodecParameters& parameters,
    const EncodeHints&) const {
  KVC_ASSIGN_OR_RETURN(BlockTensor tensor, Tensor(spec, parameters));
  return std::make_unique<Encoder>(std::move(tensor));
}

absl::StatusOr<std::unique_ptr<TensorDecoder>> BlockCodec::NewDecoder(
    const TensorSpec& spec, const CodecParameters& parameters) const {
  KVC_ASSIGN_OR_RETURN(BlockTensor tensor, Tensor(spec, parameters));
  return std::make_unique<Decoder>(std::move(tensor), [this, spec, parameters] {
    return Tensor(spec, parameters);
  });
}

// A block's payload that is not whole yet, and its values.
absl::StatusOr<DecoderBounds> BlockCodec::BoundsOfDecoder(
    const TensorSpec& spec, const CodecParameters& parameters) const {
  KVC_ASSIGN_OR_RETURN(const BlockTensor tensor, Tensor(spec, parameters));
  return DecoderBounds{
      .block = tensor.most.elements * DTypeSize(tensor.dtype),
      .memory = tensor.most.payload + tensor.most.elements * sizeof(float)};
}

}  // namespace kvcompress
