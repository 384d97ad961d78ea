// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encoders and decoders of codecs whose payload is a run of blocks, each of
// consecutive elements and of a size that follows from the shape. A codec says
// how one block is done; what is here does the stream. Internal to the library.

#ifndef KVCOMPRESS_CODECS_BLOCK_CODEC_H_
#define KVCOMPRESS_CODECS_BLOCK_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/elements.h"
#include "kernels/kernels.h"
#include "kvcompress/codec.h"

namespace kvcompress {

// How a tensor is cut into blocks, and how a block is coded. Not thread safe.
class BlockScheme {
 public:
  struct Sizes {
    size_t elements = 0;  // at least 1
    size_t payload = 0;   // bytes, at least 1
  };

  virtual ~BlockScheme() = default;

  // The block that begins at an element. REQUIRES: it begins a block.
  virtual Sizes At(uint64_t element) const = 0;

  // As kernels::EncodeBlock, for the block that begins at `element`.
  virtual kernels::EncodeFault Encode(uint64_t element, const uint8_t* source,
                                      uint8_t* payload, uint8_t* decoded,
                                      DistortionSums* sums) = 0;

  // As kernels::DecodeBlock. DATA_LOSS that says which rule the payload breaks.
  virtual absl::Status Decode(uint64_t element, const uint8_t* payload,
                              uint8_t* decoded) = 0;
};

// Encodes a block by its values: loads them into `values`, lets
// `encode(values)` write the payload and leave what that decodes to, and
// measures it. `encode` returns nothing, or the element that no scale can hold.
template <typename EncodeTo>
kernels::EncodeFault EncodeValues(DType dtype, const uint8_t* source,
                                  absl::Span<float> values, EncodeTo encode,
                                  uint8_t* decoded, DistortionSums* sums) {
  using Kind = kernels::EncodeFault::Kind;
  if (const std::optional<size_t> fault = LoadFinite(dtype, source, values)) {
    return {Kind::kNotFinite, *fault};
  }
  if (const std::optional<size_t> fault = encode(values)) {
    return {Kind::kScaleOverflow, *fault};
  }
  std::vector<uint8_t> rounded;
  if (decoded == nullptr) {
    rounded.resize(values.size() * DTypeSize(dtype));
    decoded = rounded.data();
  }
  StoreElements(dtype, values, decoded);
  *sums = CompareElements(dtype, source, decoded, values.size());
  return {};
}

// A tensor in the terms of a scheme.
struct BlockTensor {
  std::string codec;
  std::string name;
  DType dtype = DType::kF32;
  uint64_t elements = 0;
  uint64_t payload_size = 0;  // bytes of all blocks
  BlockScheme::Sizes most;    // of any block
  std::unique_ptr<BlockScheme> scheme;
};

// A codec whose tensors have schemes: it provides those, and this class codes.
class BlockCodec : public Codec {
 public:
  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters& parameters,
      const EncodeHints& hints) const final;
  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec, const CodecParameters& parameters) const final;
  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec, const CodecParameters& parameters) const final;

 private:
  virtual absl::StatusOr<BlockTensor> Tensor(
      const TensorSpec& spec, const CodecParameters& parameters) const = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_BLOCK_CODEC_H_
