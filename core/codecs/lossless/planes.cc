// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/lossless/planes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/portable_types.h"

namespace kvcompress::lossless {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and so is this code");

template <typename Bits>
Bits Load(const uint8_t* elements, size_t index) {
  Bits bits;
  std::memcpy(&bits, elements + index * sizeof(bits), sizeof(bits));
  return bits;
}

template <typename Bits>
void Split(const uint8_t* elements, size_t count, uint8_t* planes) {
  constexpr int kShift = 8 * (sizeof(Bits) - sizeof(uint16_t));
  for (size_t i = 0; i < count; ++i) {
    const Bits bits = Load<Bits>(elements, i);
    const uint32_t h = bits >> kShift;
    planes[i] = static_cast<uint8_t>(h >> 7);
    planes[count + i] = static_cast<uint8_t>((h >> 8 & 128) | (h & 127));
    if constexpr (sizeof(Bits) == 4) {
      planes[2 * count + i] = static_cast<uint8_t>(bits >> 8);
      planes[3 * count + i] = static_cast<uint8_t>(bits);
    }
  }
}

template <typename Bits>
void Join(const uint8_t* planes, size_t count, uint8_t* elements) {
  constexpr int kShift = 8 * (sizeof(Bits) - sizeof(uint16_t));
  for (size_t i = 0; i < count; ++i) {
    const uint32_t second = planes[count + i];
    const uint32_t h =
        (second & 128) << 8 | uint32_t{planes[i]} << 7 | (second & 127);
    Bits bits = static_cast<Bits>(h << kShift);
    if constexpr (sizeof(Bits) == 4) {
      bits |= uint32_t{planes[2 * count + i]} << 8 | planes[3 * count + i];
    }
    std::memcpy(elements + i * sizeof(bits), &bits, sizeof(bits));
  }
}

// The exponents of F64 less the lowest that binary32 has, so that one byte has
// all that matters of an exponent that it shares with binary32.
constexpr uint64_t kDoubleSign = uint64_t{1} << 63;
constexpr uint64_t kDoubleBase = uint64_t{896} << 52;

void SplitDoubles(const uint8_t* elements, size_t count, uint8_t* planes) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = Load<uint64_t>(elements, i);
    const uint64_t rest = ((bits | kDoubleSign) - kDoubleBase) & ~kDoubleSign;
    planes[i] = static_cast<uint8_t>(rest >> 52);
    planes[count + i] = static_cast<uint8_t>(
        (bits >> 56 & 128) | (rest >> 56 & 0x70) | (rest >> 48 & 15));
    for (size_t p = 2; p < sizeof(bits); ++p) {
      planes[p * count + i] = static_cast<uint8_t>(bits >> (56 - 8 * p));
    }
  }
}

void JoinDoubles(const uint8_t* planes, size_t count, uint8_t* elements) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t second = planes[count + i];
    uint64_t bits =
        (second & 0x70) << 56 | uint64_t{planes[i]} << 52 | (second & 15) << 48;
    bits = (bits + kDoubleBase) & ~kDoubleSign;
    bits |= (second & 128) << 56;
    for (size_t p = 2; p < sizeof(bits); ++p) {
      bits |= uint64_t{planes[p * count + i]} << (56 - 8 * p);
    }
    std::memcpy(elements + i * sizeof(bits), &bits, sizeof(bits));
  }
}

void SplitBytes(const uint8_t* elements, size_t count, size_t size,
                uint8_t* planes) {
  for (size_t p = 0; p < size; ++p) {
    for (size_t i = 0; i < count; ++i) {
      planes[p * count + i] = elements[i * size + (size - 1 - p)];
    }
  }
}

void JoinBytes(const uint8_t* planes, size_t count, size_t size,
               uint8_t* elements) {
  for (size_t p = 0; p < size; ++p) {
    for (size_t i = 0; i < count; ++i) {
      elements[i * size + (size - 1 - p)] = planes[p * count + i];
    }
  }
}

// Of magnitudes, for which HalfToFloat does more than is needed.
struct F16 : kernels::F16 {
  static double Wide(Bits bits) {
    return std::bit_cast<float>(uint32_t{bits} << 13) * 0x1p112f;
  }
};

// Magnitudes of `kEnd` and above are left out: NaN and infinity, and those of
// F64 that binary32 rounds to infinity.
constexpr uint64_t kDoubleEnd = 0x47effffff0000000;

template <typename T, typename T::Bits kEnd = T::kLargest + 1>
DistortionSums Measure(const uint8_t* elements, size_t count) {
  using Bits = typename T::Bits;
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  // Eight sums side by side: a single one would wait for itself.
  constexpr size_t kSums = 8;
  double squares[kSums] = {};
  Bits largest = 0;
  for (size_t i = 0; i < count; ++i) {
    Bits bits = Load<Bits>(elements, i) & kMagnitude;
    bits = bits < kEnd ? bits : 0;
    largest = std::max(largest, bits);
    const double x = T::Wide(bits);
    squares[i % kSums] += x * x;
  }
  DistortionSums sums;
  sums.count = count;
  for (double square : squares) sums.sum_x2 += square;
  sums.sum_y2 = sums.sum_x2;
  sums.sum_xy = sums.sum_x2;
  sums.max_abs_x = T::Wide(largest);
  return sums;
}

}  // namespace

void SplitPlanes(const uint8_t* elements, size_t count, DType dtype,
                 uint8_t* planes) {
  switch (dtype) {
    case DType::kF32:
      return Split<uint32_t>(elements, count, planes);
    case DType::kF16:
    case DType::kBF16:
      return Split<uint16_t>(elements, count, planes);
    case DType::kF64:
      return SplitDoubles(elements, count, planes);
    default:
      return SplitBytes(elements, count, DTypeSize(dtype), planes);
  }
}

void JoinPlanes(const uint8_t* planes, size_t count, DType dtype,
                uint8_t* elements) {
  switch (dtype) {
    case DType::kF32:
      return Join<uint32_t>(planes, count, elements);
    case DType::kF16:
    case DType::kBF16:
      return Join<uint16_t>(planes, count, elements);
    case DType::kF64:
      return JoinDoubles(planes, count, elements);
    default:
      return JoinBytes(planes, count, DTypeSize(dtype), elements);
  }
}

DistortionSums MeasureExact(const uint8_t* elements, size_t count,
                            DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Measure<kernels::F32>(elements, count);
    case DType::kF16:
      return Measure<F16>(elements, count);
    case DType::kBF16:
      return Measure<kernels::BF16>(elements, count);
    case DType::kF8E4M3:
      return Measure<kernels::F8E4M3>(elements, count);
    case DType::kF8E5M2:
      return Measure<kernels::F8E5M2>(elements, count);
    case DType::kF64:
      return Measure<kernels::F64, kDoubleEnd>(elements, count);
    default:
      return {.count = count};
  }
}

}  // namespace kvcompress::lossless
