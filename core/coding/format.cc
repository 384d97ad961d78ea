// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/format.h"

#include <algorithm>
#include <bit>

#include "coding/fields.h"
#include "entropy/tables.h"

namespace kvcompress::coding {
namespace {

constexpr uint8_t kHasNorms = 1;
constexpr uint8_t kHasRotation = 2;
constexpr uint8_t kIsInterleaved = 4;
constexpr uint8_t kHasInt8Sinks = 8;
constexpr uint8_t kAllFlags = 15;

}  // namespace

bool IsStep(float step) {
  return step >= 0x1p-100f && step <= 0x1p100f &&
         (std::bit_cast<uint32_t>(step) & 0x1fff) == 0;
}

float RoundToStep(double value) {
  const float step =
      static_cast<float>(std::clamp<double>(value, 0x1p-100, 0x1p100));
  const uint32_t bits = std::bit_cast<uint32_t>(step);
  return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

void WriteTensorHeader(const TensorHeader& header, std::string* out) {
  uint8_t flags = 0;
  if (header.norms) flags |= kHasNorms;
  if (header.int8_sinks) flags |= kHasInt8Sinks;
  if (header.rotation) {
    flags |= kHasRotation;
    if (header.rotation->interleaved) flags |= kIsInterleaved;
  }
  Put(kModeCoded, out);
  Put(flags, out);
  Put(header.sinks, out);
  Put(header.sink_shift, out);
  Put(header.recent, out);
  Put(header.recent_shift, out);
  Put(uint8_t{0}, out);
  Put(header.step, out);
  if (header.rotation) Put(header.rotation->ratio, out);
}

size_t TensorHeaderSize(absl::Span<const uint8_t> bytes) {
  return kTensorHeaderSize + (bytes[1] & kHasRotation ? kRotationSize : 0);
}

std::optional<TensorHeader> ReadTensorHeader(absl::Span<const uint8_t> bytes,
                                             const Geometry& geometry) {
  const uint8_t flags = bytes[1];
  TensorHeader header;
  header.norms = flags & kHasNorms;
  header.int8_sinks = flags & kHasInt8Sinks;
  header.sinks = bytes[2];
  header.sink_shift = bytes[3];
  header.recent = Get<uint16_t>(bytes, 4);
  header.recent_shift = bytes[6];
  header.step = Get<float>(bytes, 8);
  const bool rotated = flags & kHasRotation;
  if (rotated) {
    header.rotation = {.ratio = Get<uint64_t>(bytes, kTensorHeaderSize),
                       .interleaved = (flags & kIsInterleaved) != 0};
  }
  const bool good =
      bytes[0] == kModeCoded && flags <= kAllFlags && bytes[7] == 0 &&
      (rotated || !(flags & kIsInterleaved)) && !(rotated && header.norms) &&
      (!rotated || geometry.channels() % 2 == 0) &&
      header.sink_shift <= kMaxShift && header.recent_shift <= kMaxShift &&
      IsStep(header.step) && geometry.codable();
  if (!good) return std::nullopt;
  return header;
}

void WriteBlockHeaderStart(const BlockHeader& header, std::string* out) {
  Put(header.size, out);
  Put(header.words, out);
  Put(header.escapes, out);
  Put(header.exceptions, out);
  Put(header.norm_middle, out);
  Put(header.norm_table, out);
  Put(header.class_middle, out);
  Put(header.class_table, out);
  Put(header.mean_table, out);
  Put(header.mean_shift, out);
}

std::optional<BlockHeader> ReadBlockHeaderStart(absl::Span<const uint8_t> bytes,
                                                uint64_t elements) {
  BlockHeader header;
  header.size = Get<uint32_t>(bytes, 0);
  header.words = Get<uint32_t>(bytes, 4);
  header.escapes = Get<uint32_t>(bytes, 8);
  header.exceptions = Get<uint32_t>(bytes, 12);
  header.norm_middle = Get<uint16_t>(bytes, 16);
  header.norm_table = bytes[18];
  header.class_middle = bytes[19];
  header.class_table = bytes[20];
  header.mean_table = bytes[21];
  header.mean_shift = bytes[22];
  const bool good =
      header.size <= MaxBlockSize(elements) && header.norm_middle < kNormEnd &&
      header.norm_table < kTables && header.class_middle < kClasses &&
      header.class_table < kTables && header.mean_table < kTables &&
      header.mean_shift <= kMaxMeanShift;
  if (!good) return std::nullopt;
  return header;
}

void WriteBlockHeader(const BlockHeader& header, std::string* out) {
  WriteBlockHeaderStart(header, out);
  Put(uint8_t{0}, out);
}

std::optional<BlockHeader> ReadBlockHeader(absl::Span<const uint8_t> bytes,
                                           uint64_t elements) {
  std::optional<BlockHeader> header = ReadBlockHeaderStart(bytes, elements);
  if (!header || header->size < kBlockHeaderSize ||
      bytes[kBlockHeaderStartSize] != 0) {
    return std::nullopt;
  }
  return header;
}

float NormOf(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 20);
}

std::vector<Run> RunsOf(const TensorHeader& header, const Geometry& geometry,
                        const Block& block, size_t first) {
  std::vector<Run> runs;
  for (size_t t = first; t < block.tokens; ++t) {
    const int shift = header.ShiftOf(block.first_token + t, geometry.tokens());
    if (runs.empty() || runs.back().shift != shift) {
      runs.push_back({.begin = t, .end = t, .shift = shift});
    }
    runs.back().end = t + 1;
  }
  return runs;
}

}  // namespace kvcompress::coding
