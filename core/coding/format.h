// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The headers of a payload: one of the tensor, and one of each block. Specified
// in core/FORMAT.md, "ecsq" and "klt".

#ifndef KVCOMPRESS_CODING_FORMAT_H_
#define KVCOMPRESS_CODING_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coding/geometry.h"
#include "quantization/rope.h"

namespace kvcompress::coding {

// The first byte of a payload: how the tensor is coded. Never change these
// values.
inline constexpr uint8_t kModeInt8 = 0;      // quantization/int8.h
inline constexpr uint8_t kModeIdentity = 1;  // blocks without a transform
inline constexpr uint8_t kModeKlt = 2;       // in their principal components

inline constexpr int kMaxShift = 4;

// What holds for every block of a tensor. With kModeKlt sinks are 8-bit
// integers, and there are neither shifts nor recent tokens.
struct TensorHeader {
  uint8_t mode = kModeIdentity;
  bool norms = false;       // each token of a head has its norm
  bool int8_sinks = false;  // sinks are 8-bit integers, not coded
  bool trellis = false;  // quanta follow the states of a trellis; of kModeKlt
  std::optional<Rotation> rotation;
  uint8_t sinks = 0;  // first tokens of the tensor, kept finer
  uint8_t sink_shift = 0;
  uint16_t recent = 0;  // last tokens of the tensor, kept finer
  uint8_t recent_shift = 0;
  float step = 1;

  // How often the step is halved for token `t` of `tokens`.
  int ShiftOf(uint64_t t, uint64_t tokens) const {
    if (t < sinks) return sink_shift;
    return t + recent >= tokens ? recent_shift : 0;
  }
  // How many tokens at the beginning of `block` are sinks.
  size_t Sinks(const Block& block) const {
    if (block.first_token >= sinks) return 0;
    return std::min<uint64_t>(sinks - block.first_token, block.tokens);
  }
  // How many of them are 8-bit integers.
  size_t Int8Sinks(const Block& block) const {
    return int8_sinks ? Sinks(block) : 0;
  }
};

inline constexpr size_t kTensorHeaderSize = 12;
// With a rotation of a part of the channels, or of frequencies of its own, and
// kMaxRuns of them.
inline constexpr size_t kMaxTensorHeaderSize =
    kTensorHeaderSize + 16 + 6 * kMaxRuns;

void WriteTensorHeader(const TensorHeader& header, std::string* out);
// Bytes of the header that begins with `bytes`, at least kTensorHeaderSize.
size_t TensorHeaderSize(absl::Span<const uint8_t> bytes);
// DATA_LOSS says which field breaks a rule. REQUIRES: bytes.size() ==
// TensorHeaderSize(bytes); a mode of blocks, and their geometry.
absl::StatusOr<TensorHeader> ReadTensorHeader(absl::Span<const uint8_t> bytes,
                                              const Geometry& geometry);

struct BlockHeader {
  uint32_t size = 0;        // of the block, this header included
  uint32_t words = 0;       // 16-bit words of the entropy coder
  uint32_t escapes = 0;     // bytes of the list of escapes
  uint32_t exceptions = 0;  // bytes of the list of exceptions
  uint16_t norm_middle = 0;
  uint8_t norm_table = 0;
  uint8_t class_middle = 0;
  uint8_t class_table = 0;
  uint8_t mean_table = 0;
  uint8_t mean_shift = 0;
  // Of kModeKlt alone.
  uint8_t offset_table = kNoOffsets;
  uint8_t reflector_table = 0;  // of the classes of reflectors

  static constexpr uint8_t kNoOffsets = 255;
};

inline constexpr int kMaxMeanShift = 12;

constexpr size_t BlockHeaderSize(uint8_t mode) {
  return mode == kModeKlt ? 28 : 24;
}
// Bytes of a block of so many elements; what would need more is not coded.
constexpr uint64_t MaxBlockSize(uint64_t elements) {
  return 4 * elements + 1024;
}

void WriteBlockHeader(uint8_t mode, const BlockHeader& header,
                      std::string* out);
// Checks what does not need the rest of the block; DATA_LOSS says which field
// breaks a rule. REQUIRES: at least BlockHeaderSize(mode) bytes.
absl::StatusOr<BlockHeader> ReadBlockHeader(uint8_t mode,
                                            absl::Span<const uint8_t> bytes,
                                            uint64_t elements);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_FORMAT_H_
