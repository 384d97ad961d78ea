// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"

namespace kvcompress::kernels {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and so are these kernels");

struct F32 {
  using Bits = uint32_t;
  static float Load(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits Round(float value) { return std::bit_cast<uint32_t>(value); }
};

struct F16 {
  using Bits = uint16_t;
  static float Load(Bits bits) { return HalfToFloat(bits); }
  // The largest finite value where rounding would give infinity.
  static Bits Round(float value) {
    const uint16_t half = FloatToHalf(value);
    return (half & 0x7fff) == 0x7c00 ? static_cast<uint16_t>(half - 1) : half;
  }
};

struct BF16 {
  using Bits = uint16_t;
  static float Load(Bits bits) { return BFloat16ToFloat(bits); }
  static Bits Round(float value) { return FloatToBFloat16(value); }
};

template <typename T>
typename T::Bits LoadBits(const uint8_t* bytes, size_t index) {
  typename T::Bits bits;
  std::memcpy(&bits, bytes + index * sizeof(bits), sizeof(bits));
  return bits;
}

template <typename T>
void StoreBits(typename T::Bits bits, uint8_t* bytes, size_t index) {
  std::memcpy(bytes + index * sizeof(bits), &bits, sizeof(bits));
}

constexpr uint16_t kHalfInfinity = 0x7c00;

// x / scale, rounded half away from zero and clamped to 4 bits.
int Quantize(float x, float scale) {
  return static_cast<int>(std::clamp(std::round(x / scale), -8.0f, 7.0f));
}

int SignExtend4(uint8_t nibble) { return (nibble ^ 8) - 8; }

void Accumulate(float x, float y, DistortionSums* sums) {
  const double dx = x;
  const double dy = y;
  const double e = dy - dx;
  sums->sum_x2 += dx * dx;
  sums->sum_y2 += dy * dy;
  sums->sum_xy += dx * dy;
  sums->sum_e2 += e * e;
  sums->sum_abs_e += std::abs(e);
  sums->max_abs_e = std::max(sums->max_abs_e, std::abs(e));
  sums->max_abs_x = std::max(sums->max_abs_x, std::abs(dx));
}

template <typename T>
EncodeFault EncodeBlock(const uint8_t* source, size_t count, size_t group,
                        uint8_t* payload, uint8_t* decoded,
                        DistortionSums* sums) {
  *sums = DistortionSums();
  sums->count = count;
  uint8_t* codes = payload + Int4ScalesSize(count, group);
  for (size_t first = 0, g = 0; first < count; first += group, ++g) {
    const size_t m = std::min(group, count - first);
    float x[128];
    float max_abs = 0;
    size_t max_index = 0;
    for (size_t i = 0; i < m; ++i) {
      x[i] = T::Load(LoadBits<T>(source, first + i));
      if (!std::isfinite(x[i])) {
        return {EncodeFault::Kind::kNotFinite, first + i};
      }
      if (std::abs(x[i]) > max_abs) {
        max_abs = std::abs(x[i]);
        max_index = i;
      }
    }
    const uint16_t scale_bits = FloatToHalf(max_abs / 7.0f);
    if (scale_bits == kHalfInfinity) {
      return {EncodeFault::Kind::kScaleOverflow, first + max_index};
    }
    std::memcpy(payload + 2 * g, &scale_bits, sizeof(scale_bits));
    const float scale = HalfToFloat(scale_bits);

    const size_t half = (m + 1) / 2;
    std::memset(codes, 0, half);
    for (size_t i = 0; i < m; ++i) {
      const int q = scale_bits == 0 ? 0 : Quantize(x[i], scale);
      codes[i % half] |= static_cast<uint8_t>((q & 15) << (i < half ? 0 : 4));
      const typename T::Bits y = T::Round(static_cast<float>(q) * scale);
      if (decoded != nullptr) StoreBits<T>(y, decoded, first + i);
      Accumulate(x[i], T::Load(y), sums);
    }
    codes += half;
  }
  return {};
}

template <typename T>
bool DecodeBlock(const uint8_t* payload, size_t count, size_t group,
                 uint8_t* decoded) {
  const uint8_t* codes = payload + Int4ScalesSize(count, group);
  for (size_t first = 0, g = 0; first < count; first += group, ++g) {
    const size_t m = std::min(group, count - first);
    uint16_t scale_bits;
    std::memcpy(&scale_bits, payload + 2 * g, sizeof(scale_bits));
    if (scale_bits >= kHalfInfinity) return false;
    const float scale = HalfToFloat(scale_bits);
    const size_t half = (m + 1) / 2;
    if (m % 2 != 0 && codes[half - 1] >> 4 != 0) return false;
    for (size_t i = 0; i < m; ++i) {
      const uint8_t byte = codes[i % half];
      const int q = SignExtend4(i < half ? byte & 15 : byte >> 4);
      StoreBits<T>(T::Round(static_cast<float>(q) * scale), decoded, first + i);
    }
    codes += half;
  }
  return true;
}

constexpr KernelSet kPortable = {
    .name = "portable",
    .int4_encode = {EncodeBlock<F32>, EncodeBlock<F16>, EncodeBlock<BF16>},
    .int4_decode = {DecodeBlock<F32>, DecodeBlock<F16>, DecodeBlock<BF16>},
};
static_assert(static_cast<int>(DType::kF32) == 0 &&
              static_cast<int>(DType::kF16) == 1 &&
              static_cast<int>(DType::kBF16) == 2);

}  // namespace

const KernelSet& Portable() { return kPortable; }

}  // namespace kvcompress::kernels
