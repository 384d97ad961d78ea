// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/format.h"

#include <algorithm>
#include <bit>

#include "coding/fields.h"
#include "coding/format.h"
#include "entropy/tables.h"

namespace kvcompress::klt {
namespace {

constexpr uint8_t kHasNorms = 1;
constexpr uint8_t kHasRotation = 2;
constexpr uint8_t kIsInterleaved = 4;
constexpr uint8_t kHasTrellis = 8;
constexpr uint8_t kAllFlags = 15;

using coding::Get;
using coding::Put;

}  // namespace

void WriteTensorHeader(const TensorHeader& header, std::string* out) {
  uint8_t flags = 0;
  if (header.norms) flags |= kHasNorms;
  if (header.trellis) flags |= kHasTrellis;
  if (header.rotation) {
    flags |= kHasRotation;
    if (header.rotation->interleaved) flags |= kIsInterleaved;
  }
  Put(kModeJoint, out);
  Put(flags, out);
  Put(header.sinks, out);
  out->append(5, '\0');
  Put(header.step, out);
  if (header.rotation) Put(header.rotation->ratio, out);
}

std::optional<TensorHeader> ReadTensorHeader(absl::Span<const uint8_t> bytes,
                                             const Geometry& geometry) {
  const uint8_t flags = bytes[1];
  TensorHeader header;
  header.norms = flags & kHasNorms;
  header.trellis = flags & kHasTrellis;
  header.sinks = bytes[2];
  header.step = Get<float>(bytes, 8);
  const bool rotated = flags & kHasRotation;
  if (rotated) {
    header.rotation = {.ratio = Get<uint64_t>(bytes, kTensorHeaderSize),
                       .interleaved = (flags & kIsInterleaved) != 0};
  }
  const bool zeros = std::all_of(bytes.begin() + 3, bytes.begin() + 8,
                                 [](uint8_t byte) { return byte == 0; });
  const bool good = bytes[0] == kModeJoint && flags <= kAllFlags && zeros &&
                    (rotated || !(flags & kIsInterleaved)) &&
                    !(rotated && header.norms) &&
                    (!rotated || geometry.channels() % 2 == 0) &&
                    coding::IsStep(header.step) && geometry.codable();
  if (!good) return std::nullopt;
  return header;
}

void WriteBlockHeader(const BlockHeader& header, std::string* out) {
  coding::WriteBlockHeaderStart(header, out);
  Put(header.offset_table, out);
  Put(header.reflector_table, out);
  out->append(3, '\0');
}

std::optional<BlockHeader> ReadBlockHeader(absl::Span<const uint8_t> bytes,
                                           uint64_t elements) {
  const std::optional<coding::BlockHeader> start =
      coding::ReadBlockHeaderStart(bytes, elements);
  if (!start) return std::nullopt;
  BlockHeader header{*start};
  header.offset_table = bytes[23];
  header.reflector_table = bytes[24];
  const bool good = header.size > kBlockHeaderSize &&
                    (header.offset_table < coding::kTables ||
                     header.offset_table == BlockHeader::kNoOffsets) &&
                    header.reflector_table < coding::kTables &&
                    bytes[25] == 0 && bytes[26] == 0 && bytes[27] == 0;
  if (!good) return std::nullopt;
  return header;
}

float StepFactor(int offset) {
  // 2^(-i / 4), rounded to nearest.
  constexpr uint32_t kQuarters[] = {0x3f800000, 0x3f5744fd, 0x3f3504f3,
                                    0x3f1837f0};
  const int whole = offset >> 2;
  return std::bit_cast<float>(kQuarters[offset & 3] -
                              (static_cast<uint32_t>(whole) << 23));
}

int ClassAt(uint8_t klass, int offset) {
  return std::clamp(klass + offset, 0, coding::kClasses - 1);
}

}  // namespace kvcompress::klt
