// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/lossless/lossless.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codecs/lossless/block.h"
#include "codecs/lossless/planes.h"
#include "codecs/option_schema.h"
#include "kvcompress/error.h"
#include "status/macros.h"
#include "tensor/block_stream.h"

namespace kvcompress {
namespace {

using lossless::kBlockElements;

class Encoder : public TensorEncoder {
 public:
  Encoder(const TensorSpec& spec, uint64_t elements)
      : name_(spec.name),
        dtype_(spec.dtype),
        element_size_(DTypeSize(spec.dtype)),
        blocks_(elements * element_size_, kBlockElements * element_size_),
        scratch_(std::min<uint64_t>(elements, kBlockElements) * element_size_) {
  }

  absl::Status Append(absl::string_view bytes, std::string* payload,
                      std::string* decoded) override {
    if (decoded != nullptr) decoded->append(bytes.data(), bytes.size());
    return blocks_.Append(bytes, [&](absl::string_view block) {
      lossless::EncodeBlock(block, dtype_, scratch_.data(), payload);
      distortion_.Add(
          lossless::MeasureExact(reinterpret_cast<const uint8_t*>(block.data()),
                                 block.size() / element_size_, dtype_));
      return absl::OkStatus();
    });
  }

  absl::Status Finish(std::string*, std::string*) override {
    if (blocks_.done()) return absl::OkStatus();
    return MakeError(absl::StatusCode::kInternal, "the tensor is incomplete",
                     {.reason = "INTERNAL", .tensor = name_});
  }

  const DistortionAccumulator& distortion() const override {
    return distortion_;
  }

 private:
  const std::string name_;
  const DType dtype_;
  const uint64_t element_size_;
  BlockStream blocks_;
  std::vector<uint8_t> scratch_;
  DistortionAccumulator distortion_;
};

class Decoder : public TensorDecoder {
 public:
  Decoder(const TensorSpec& spec, uint64_t elements)
      : name_(spec.name),
        dtype_(spec.dtype),
        element_size_(DTypeSize(spec.dtype)),
        remaining_(elements) {}

  absl::StatusOr<bool> DecodeStep(absl::string_view* payload, size_t most,
                                  std::string* decoded) override {
    while (!payload->empty()) {
      if (remaining_ == 0) {
        return Damaged("the payload goes on after its last block");
      }
      if (!Fits(BlockElements() * element_size_, most, *decoded)) return true;
      if (size_ == 0) {
        const absl::string_view sizes =
            Collect(lossless::SizesSize(element_size_), payload);
        if (sizes.empty()) break;
        const std::optional<size_t> size =
            lossless::BlockSize(sizes, BlockElements(), element_size_);
        if (!size) return Damaged("the size of a plane breaks the format");
        size_ = *size;
        // The sizes are a part of the block: take them up again.
        if (partial_.empty()) partial_.assign(sizes.data(), sizes.size());
      }
      const absl::string_view block = Collect(size_, payload);
      if (block.empty()) break;
      KVC_RETURN_IF_ERROR(DecodeBlock(block, decoded));
    }
    return false;
  }

  size_t Cut(absl::string_view payload, size_t size) override {
    if (!needs_all()) return 0;
    std::vector<Piece> pieces;
    for (uint64_t element = 0; element < remaining_;) {
      const size_t count = std::min(remaining_ - element, kBlockElements);
      const absl::string_view sizes =
          payload.substr(0, lossless::SizesSize(element_size_));
      if (sizes.size() < lossless::SizesSize(element_size_)) return 0;
      const std::optional<size_t> bytes =
          lossless::BlockSize(sizes, count, element_size_);
      if (!bytes || *bytes > payload.size()) return 0;
      if (pieces.empty() ||
          (pieces.back().elements + count) * element_size_ > size) {
        pieces.push_back({.first = element, .payload = payload.substr(0, 0)});
      }
      Piece& piece = pieces.back();
      piece.elements += count;
      piece.payload = {piece.payload.data(), piece.payload.size() + *bytes};
      payload.remove_prefix(*bytes);
      element += count;
    }
    if (!payload.empty()) return 0;
    pieces_ = std::move(pieces);
    return pieces_.size();
  }

  uint64_t PieceBegin(size_t index) const override {
    return pieces_[index].first;
  }
  absl::Status DecodePiece(size_t index, std::string* decoded) const override {
    Decoder piece(*this, pieces_[index]);
    absl::string_view payload = pieces_[index].payload;
    while (!payload.empty()) {
      KVC_RETURN_IF_ERROR(piece.Decode(&payload, SIZE_MAX, decoded).status());
    }
    return piece.Finish();
  }

  absl::Status Finish() override {
    if (remaining_ == 0) return absl::OkStatus();
    return Damaged("the payload is incomplete");
  }

 private:
  struct Piece {
    uint64_t first = 0;  // element
    uint64_t elements = 0;
    absl::string_view payload;
  };

  // Of a piece of what another one decodes.
  Decoder(const Decoder& of, const Piece& piece)
      : name_(of.name_),
        dtype_(of.dtype_),
        element_size_(of.element_size_),
        element_(piece.first),
        remaining_(piece.elements) {}

  // Elements of the block that is due.
  size_t BlockElements() const {
    return std::min<uint64_t>(remaining_, kBlockElements);
  }

  // The first `size` bytes of the block that is due, once they are there; else
  // keeps what there is for later and returns nothing.
  absl::string_view Collect(size_t size, absl::string_view* payload) {
    const absl::string_view part = payload->substr(0, size - partial_.size());
    payload->remove_prefix(part.size());
    if (part.size() == size) return part;
    // Once: the first block is the largest.
    partial_.reserve(lossless::SizesSize(element_size_) +
                     BlockElements() * element_size_);
    partial_.append(part.data(), part.size());
    return partial_.size() == size ? absl::string_view(partial_) : "";
  }

  absl::Status DecodeBlock(absl::string_view block, std::string* decoded) {
    const size_t count = BlockElements();
    const size_t begin = decoded->size();
    scratch_.resize(count * element_size_);
    decoded->resize(begin + scratch_.size());
    if (IsNeeded(element_, element_ + count)) {
      const absl::Status status = lossless::DecodeBlock(
          block, count, dtype_, scratch_.data(),
          reinterpret_cast<uint8_t*>(decoded->data() + begin));
      if (!status.ok()) {
        return Damaged(absl::StrCat("the block of element ", element_, ": ",
                                    status.message()));
      }
    }
    element_ += count;
    remaining_ -= count;
    size_ = 0;
    partial_.clear();
    return absl::OkStatus();
  }

  absl::Status Damaged(absl::string_view message) const {
    return MakeError(absl::StatusCode::kDataLoss, message,
                     {.reason = "PAYLOAD_DAMAGED", .tensor = name_});
  }

  const std::string name_;
  const DType dtype_;
  const uint64_t element_size_;
  uint64_t element_ = 0;
  uint64_t remaining_;   // elements
  size_t size_ = 0;      // of the block that is due; 0 while it is not known
  std::string partial_;  // the beginning of that block
  std::vector<uint8_t> scratch_;
  std::vector<Piece> pieces_;  // where it was cut
};

class Lossless : public Codec {
 public:
  Lossless() {
    traits_.name = "lossless";
    traits_.description =
        "Every bit as it was: byte planes, entropy coded where that pays";
    const absl::Span<const DType> dtypes = AllDTypes();
    traits_.dtypes.assign(dtypes.begin(), dtypes.end());
    traits_.lossless = true;
    traits_.streaming = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    KVC_RETURN_IF_ERROR(ParseOptions(traits_.name, {}, {}, text).status());
    return CodecParameters();
  }

  Candidates AutoCandidates(Effort) const override { return {{""}}; }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    const uint64_t blocks =
        elements / kBlockElements + (elements % kBlockElements != 0);
    const uint64_t size = DTypeSize(spec.dtype);
    return elements * size + blocks * lossless::SizesSize(size);
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters&,
      const EncodeHints&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return std::make_unique<Encoder>(spec, elements);
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return std::make_unique<Decoder>(spec, elements);
  }

  // A block's payload that is not whole yet, and its planes.
  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    const uint64_t size = DTypeSize(spec.dtype);
    const uint64_t block = std::min<uint64_t>(elements, kBlockElements) * size;
    return DecoderBounds{.block = block,
                         .memory = lossless::SizesSize(size) + block + block};
  }

 private:
  CodecTraits traits_;
};

}  // namespace

const Codec& LosslessCodec() {
  static const Lossless* const codec = new Lossless;
  return *codec;
}

}  // namespace kvcompress
