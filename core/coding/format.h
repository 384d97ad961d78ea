// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The parts of an ecsq payload: the header of the tensor, and of each block.
// Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_CODING_FORMAT_H_
#define KVCOMPRESS_CODING_FORMAT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coding/geometry.h"
#include "kernels/rows.h"
#include "quantization/rope.h"

namespace kvcompress::coding {

// The first byte of a payload. Never change these values.
inline constexpr uint8_t kModeInt8 = 0;
inline constexpr uint8_t kModeCoded = 1;

inline constexpr int kMaxShift = 4;
inline constexpr int32_t kMaxMean = 1 << 18;  // in eighths of a step
inline constexpr int64_t kMaxQuantum = kernels::kMostQuantum;
inline constexpr uint16_t kNormEnd = 0x7f8;  // codes are below it
inline constexpr int kMaxMeanShift = 12;

// What holds for every block of a tensor.
struct TensorHeader {
  bool norms = false;       // each token of a head has its norm
  bool int8_sinks = false;  // sinks are 8-bit integers, not coded
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
  // How many tokens at the beginning of `block` are 8-bit integers.
  size_t Int8Sinks(const Block& block) const {
    if (!int8_sinks || block.first_token >= sinks) return 0;
    const uint64_t left = sinks - block.first_token;
    return left < block.tokens ? left : block.tokens;
  }
};

// Tokens [begin, end) of a block, whose step is halved `shift` times.
struct Run {
  size_t begin = 0;
  size_t end = 0;
  int shift = 0;
};

// The tokens of a block from `first` on, in runs as long as can be.
std::vector<Run> RunsOf(const TensorHeader& header, const Geometry& geometry,
                        const Block& block, size_t first);

// Visits what runs have of the tokens [begin, end): visit(begin, end, shift).
template <typename Visit>
void ForEachRun(absl::Span<const Run> runs, size_t begin, size_t end,
                Visit visit) {
  for (const Run& run : runs) {
    const size_t first = std::max(begin, run.begin);
    const size_t last = std::min(end, run.end);
    if (first < last) visit(first, last, run.shift);
  }
}

inline constexpr size_t kTensorHeaderSize = 12;
inline constexpr size_t kRotationSize = 8;

// Whether `step` can be a step: 2^-100 to 2^100, 11 significant bits.
bool IsStep(float step);
// `value` within those bounds, rounded to 11 bits.
float RoundToStep(double value);

void WriteTensorHeader(const TensorHeader& header, std::string* out);
// Bytes of the header that begins with `bytes`, at least kTensorHeaderSize.
size_t TensorHeaderSize(absl::Span<const uint8_t> bytes);
// Nothing when a rule is broken. REQUIRES: bytes.size() ==
// TensorHeaderSize(bytes).
std::optional<TensorHeader> ReadTensorHeader(absl::Span<const uint8_t> bytes,
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
};

inline constexpr size_t kBlockHeaderSize = 24;
// Bytes of a block of so many elements; what would need more is not coded.
constexpr uint64_t MaxBlockSize(uint64_t elements) {
  return 4 * elements + 1024;
}

// The fields above, without what follows them; klt begins its own with them.
// Nothing when a rule of theirs is broken.
inline constexpr size_t kBlockHeaderStartSize = 23;
void WriteBlockHeaderStart(const BlockHeader& header, std::string* out);
std::optional<BlockHeader> ReadBlockHeaderStart(absl::Span<const uint8_t> bytes,
                                                uint64_t elements);

void WriteBlockHeader(const BlockHeader& header, std::string* out);
// Nothing when a rule is broken that does not need the rest of the block.
std::optional<BlockHeader> ReadBlockHeader(absl::Span<const uint8_t> bytes,
                                           uint64_t elements);

// What a block holds beside its quanta.
struct SideData {
  std::vector<uint8_t> classes;  // of each channel of each head
  std::vector<int32_t> means;    // likewise, in eighths of a step
  std::vector<uint16_t> norms;   // of each token of each head, or empty
};

// Value of a norm's code: the upper bits of a binary32.
float NormOf(uint16_t code);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_FORMAT_H_
