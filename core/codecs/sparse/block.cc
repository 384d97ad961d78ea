// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/sparse/block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kvcompress/dtype.h"

namespace kvcompress::sparse {
namespace {

constexpr uint16_t kHalfInfinity = 0x7c00;

bool Bit(const uint8_t* bitmap, size_t i) {
  return (bitmap[i / 8] >> (i % 8) & 1) != 0;
}

// Marks the largest in magnitude; between equals, the earlier ones.
void MarkKept(BlockShape shape, absl::Span<const float> values,
              uint8_t* bitmap) {
  std::memset(bitmap, 0, shape.BitmapSize());
  uint16_t order[kBlockElements];
  uint16_t* const end = order + shape.elements;
  uint16_t* const kept = order + shape.Kept();
  std::iota(order, end, 0);
  const auto before = [&](uint16_t a, uint16_t b) {
    const float x = std::abs(values[a]);
    const float y = std::abs(values[b]);
    return x > y || (x == y && a < b);
  };
  if (kept != end) std::nth_element(order, kept, end, before);
  for (const uint16_t* i = order; i < kept; ++i) {
    bitmap[*i / 8] |= static_cast<uint8_t>(1 << (*i % 8));
  }
}

}  // namespace

std::optional<size_t> EncodeBlock(BlockShape shape, absl::Span<float> values,
                                  uint8_t* payload) {
  MarkKept(shape, values, payload);
  const uint8_t* const bitmap = payload;
  uint8_t* const scales = payload + shape.BitmapSize();
  uint8_t* const codes = scales + 2 * shape.Groups();
  const size_t half = (shape.Kept() + 1) / 2;
  std::memset(codes, 0, half);
  size_t position = 0;  // among the codes
  for (size_t g = 0; g < shape.Groups(); ++g) {
    const size_t first = g * shape.group;
    const size_t end = std::min(first + shape.group, shape.elements);
    size_t largest = end;
    for (size_t i = first; i < end; ++i) {
      if (Bit(bitmap, i) &&
          (largest == end || std::abs(values[i]) > std::abs(values[largest]))) {
        largest = i;
      }
    }
    const uint16_t bits =
        largest == end ? 0 : FloatToHalf(std::abs(values[largest]) / 7.0f);
    if (bits >= kHalfInfinity) return largest;
    std::memcpy(scales + 2 * g, &bits, sizeof(bits));
    const float scale = HalfToFloat(bits);
    for (size_t i = first; i < end; ++i) {
      if (!Bit(bitmap, i)) {
        values[i] = 0;
        continue;
      }
      const int q = bits == 0 ? 0
                              : static_cast<int>(std::clamp(
                                    std::round(values[i] / scale), -8.f, 7.f));
      codes[position % half] |=
          static_cast<uint8_t>((q & 15) << (position < half ? 0 : 4));
      ++position;
      values[i] = static_cast<float>(q) * scale;
    }
  }
  return std::nullopt;
}

absl::Status DecodeBlock(BlockShape shape, const uint8_t* payload,
                         absl::Span<float> values) {
  const uint8_t* const bitmap = payload;
  const uint8_t* const scales = bitmap + shape.BitmapSize();
  const uint8_t* const codes = scales + 2 * shape.Groups();
  const size_t kept = shape.Kept();
  const size_t half = (kept + 1) / 2;
  if (kept % 2 != 0 && codes[half - 1] >> 4 != 0) {
    return absl::DataLossError("the unused half of the last byte is not zero");
  }
  for (size_t i = shape.elements; i < 8 * shape.BitmapSize(); ++i) {
    if (Bit(bitmap, i)) {
      return absl::DataLossError("the bitmap goes on after the last element");
    }
  }
  const auto wrong_count = [&] {
    return absl::DataLossError(
        absl::StrCat("the bitmap does not keep ", kept, " elements"));
  };
  size_t position = 0;
  for (size_t g = 0; g < shape.Groups(); ++g) {
    uint16_t bits;
    std::memcpy(&bits, scales + 2 * g, sizeof(bits));
    if (bits >= kHalfInfinity) {
      return absl::DataLossError(
          absl::StrCat("the scale of group ", g, " is negative or not finite"));
    }
    const float scale = HalfToFloat(bits);
    const size_t before = position;
    const size_t first = g * shape.group;
    const size_t end = std::min(first + shape.group, shape.elements);
    for (size_t i = first; i < end; ++i) {
      values[i] = 0;
      if (!Bit(bitmap, i)) continue;
      if (position == kept) return wrong_count();
      const uint8_t byte = codes[position % half];
      const int nibble = position < half ? byte & 15 : byte >> 4;
      ++position;
      values[i] = static_cast<float>((nibble ^ 8) - 8) * scale;
    }
    if (position == before && bits != 0) {
      return absl::DataLossError(absl::StrCat(
          "group ", g, " has a scale, and none of its elements is kept"));
    }
  }
  if (position != kept) return wrong_count();
  return absl::OkStatus();
}

}  // namespace kvcompress::sparse
