// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The parts of a klt payload in mode 2: the header of the tensor, and of each
// block. Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_CODECS_KLT_FORMAT_H_
#define KVCOMPRESS_CODECS_KLT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "codecs/klt/geometry.h"
#include "coding/format.h"
#include "quantization/rope.h"

namespace kvcompress::klt {

// The first byte of a payload whose other modes are those of ecsq. Never change
// this value.
inline constexpr uint8_t kModeJoint = 2;

inline constexpr size_t kMaxVectors = 128;  // of a group
// What the differences of a group's reflector classes begin from.
inline constexpr int kFirstReflectorClass = 15;
// Offsets of tokens, in quarter octaves: steps are finer by 2^(offset / 4).
inline constexpr int kMinOffset = -16;
inline constexpr int kMaxOffset = 48;

// What holds for every block of a tensor.
struct TensorHeader {
  bool norms = false;    // each token of a head has its norm
  bool trellis = false;  // quanta follow the states of a trellis
  std::optional<coding::Rotation> rotation;
  uint8_t sinks = 0;  // first tokens of the tensor, which are 8-bit integers
  float step = 1;

  // How many tokens at the beginning of `block` are 8-bit integers.
  size_t Sinks(const Block& block) const {
    if (block.first_token >= sinks) return 0;
    const uint64_t left = sinks - block.first_token;
    return left < block.tokens ? left : block.tokens;
  }
};

// As long as that of ecsq, with a rotation or without.
using coding::kTensorHeaderSize;
using coding::TensorHeaderSize;

void WriteTensorHeader(const TensorHeader& header, std::string* out);
// Nothing when a rule is broken. REQUIRES: bytes.size() ==
// TensorHeaderSize(bytes).
std::optional<TensorHeader> ReadTensorHeader(absl::Span<const uint8_t> bytes,
                                             const Geometry& geometry);

// Begins as that of ecsq.
struct BlockHeader : coding::BlockHeader {
  uint8_t offset_table = kNoOffsets;
  uint8_t reflector_table = 0;  // of the classes of reflectors

  static constexpr uint8_t kNoOffsets = 255;
};

inline constexpr size_t kBlockHeaderSize = 28;
using coding::MaxBlockSize;

void WriteBlockHeader(const BlockHeader& header, std::string* out);
// Nothing when a rule is broken that does not need the rest of the block.
std::optional<BlockHeader> ReadBlockHeader(absl::Span<const uint8_t> bytes,
                                           uint64_t elements);

// In the place of a number of reflectors: the group's basis is that of the
// block before it.
inline constexpr uint8_t kSameBasis = 255;

// Everything a block holds but its bases and exceptions.
struct BlockContent {
  std::vector<uint8_t> classes;  // of each component
  std::vector<int32_t> means;    // of each channel, in eighths of a step
  std::vector<uint16_t> norms;   // of each token of each head, or empty
  std::vector<int8_t> offsets;   // of each token
  // Group by group, [tokens, components]: in steps, with a trellis in half
  // steps. Those of sinks are not used. A decoder keeps them elsewhere.
  std::unique_ptr<int32_t[]> levels;
  // For each head and sink, in this order: the scale, and a code for each
  // channel.
  std::vector<uint16_t> sink_scales;
  std::vector<int8_t> sink_codes;
};

// Step of a token over that of the tensor, 2^(-offset / 4).
float StepFactor(int offset);

// Class of a component at a token of that offset.
int ClassAt(uint8_t klass, int offset);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_FORMAT_H_
