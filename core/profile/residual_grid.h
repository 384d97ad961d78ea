// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The grid that residuals are differences on: elements of 16 bits as integers,
// about as fine as what a profile lost of their channel. Specified in
// core/FORMAT.md, "lossless-profile". Internal to the library.

#ifndef KVCOMPRESS_PROFILE_RESIDUAL_GRID_H_
#define KVCOMPRESS_PROFILE_RESIDUAL_GRID_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "entropy/tables.h"
#include "kvcompress/dtype.h"

namespace kvcompress::profile {

// Of a block: its size, the number of words and the bytes of its escapes.
inline constexpr size_t kResidualHeaderSize = 12;
// In the place of the number of words: the block has elements as they are.
inline constexpr uint32_t kRawBlock = 0xffffffff;
inline constexpr size_t kElementSize = sizeof(uint16_t);
inline constexpr uint16_t kMagnitude = 0x7fff;
// The level of a standard deviation of 1; a level is a quarter of an octave.
inline constexpr int kLevelOfOne = 1024;
// The class of a standard deviation of one step of the grid.
inline constexpr int kClassOfOne = 15;
// A step of the grid is so many octaves below the standard deviation, or up to
// one octave more.
inline constexpr int kFinerOctaves = 2;

// A floating-point type of 16 bits.
struct ElementFormat {
  int mantissa;  // bits
  int bias;
  int largest_floor;  // exponent field
};

inline ElementFormat FormatOf(DType dtype) {
  return dtype == DType::kBF16 ? ElementFormat{7, 127, 254}
                               : ElementFormat{10, 15, 30};
}

// Elements as integers: those with an exponent field of at least `floor` in
// their order, others in steps of those at the floor, towards 0.
struct ElementGrid {
  int floor;
  int klass;  // of differences from an element at the floor or below
};

inline ElementGrid GridOf(const ElementFormat& format, int level) {
  const int quarters = level - kLevelOfOne;
  const int octaves = quarters >> 2;
  const int unit = format.bias + format.mantissa;
  ElementGrid grid;
  grid.floor =
      std::clamp(octaves - kFinerOctaves + unit, 1, format.largest_floor);
  grid.klass = kClassOfOne + quarters - 4 * (grid.floor - unit);
  return grid;
}

// Of which only the bits of the mantissa count below the floor.
inline int ShiftAt(int exponent, int floor) {
  return floor - std::max(exponent, 1);
}

inline int SignificandOf(const ElementFormat& format, int magnitude) {
  const int exponent = magnitude >> format.mantissa;
  return magnitude - (std::max(exponent - 1, 0) << format.mantissa);
}

inline int32_t IndexOf(const ElementFormat& format, int floor, uint16_t bits) {
  const int magnitude = bits & kMagnitude;
  const int exponent = magnitude >> format.mantissa;
  int index;
  if (exponent >= floor) {
    index = magnitude - ((floor - 1) << format.mantissa);
  } else {
    const int shift = ShiftAt(exponent, floor);
    index =
        shift > format.mantissa ? 0 : SignificandOf(format, magnitude) >> shift;
  }
  return bits > kMagnitude ? -index : index;
}

inline uint8_t TableOf(const ElementFormat& format, const ElementGrid& grid,
                       uint16_t predicted) {
  const int exponent = (predicted & kMagnitude) >> format.mantissa;
  const int klass = grid.klass - 4 * std::max(exponent - grid.floor, 0);
  return static_cast<uint8_t>(std::clamp<int>(klass, 0, coding::kTables - 1));
}

inline const uint8_t* ElementsOf(absl::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

inline uint16_t ElementAt(const uint8_t* elements, size_t index) {
  uint16_t bits;
  std::memcpy(&bits, elements + index * kElementSize, sizeof(bits));
  return bits;
}

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_RESIDUAL_GRID_H_
