// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "kernels/lane_sums.h"
#include "kernels/portable_types.h"

namespace kvcompress::kernels {
namespace {

constexpr uint16_t kHalfInfinity = 0x7c00;

// The two widths of codes. Codes of a group of m elements take Size(m) bytes.
struct Codes4 {
  static constexpr float kDivisor = 7, kLeast = -8, kMax = 7;
  static size_t Size(size_t m) { return (m + 1) / 2; }
  // Halves of the group share a byte. REQUIRES: zeroed bytes.
  static void Store(int q, size_t i, size_t m, uint8_t* codes) {
    const size_t half = Size(m);
    codes[i % half] |= static_cast<uint8_t>((q & 15) << (i < half ? 0 : 4));
  }
  static int Load(const uint8_t* codes, size_t i, size_t m) {
    const size_t half = Size(m);
    const uint8_t byte = codes[i % half];
    const uint8_t nibble = i < half ? byte & 15 : byte >> 4;
    return (nibble ^ 8) - 8;
  }
  // Whether the bits that hold no code are 0.
  static bool Padded(const uint8_t* codes, size_t m) {
    return m % 2 == 0 || codes[Size(m) - 1] >> 4 == 0;
  }
};

struct Codes8 {
  static constexpr float kDivisor = 127, kLeast = -128, kMax = 127;
  static size_t Size(size_t m) { return m; }
  static void Store(int q, size_t i, size_t, uint8_t* codes) {
    codes[i] = static_cast<uint8_t>(q);
  }
  static int Load(const uint8_t* codes, size_t i, size_t) {
    return static_cast<int8_t>(codes[i]);
  }
  static bool Padded(const uint8_t*, size_t) { return true; }
};

// The sign of position i in a rotation: bit 63 of (i + 1) times 2^64 divided by
// the golden ratio.
float RotationSign(size_t i) {
  return (i + 1) * 0x9e3779b97f4a7c15u >> 63 != 0 ? -1.0f : 1.0f;
}

// Multiplies each run of `width` values by the Hadamard matrix over the root of
// `width`: its own inverse, but for the signs.
void Hadamard(size_t width, size_t count, float* values) {
  const float norm =
      static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
  for (float* run = values; run < values + count; run += width) {
    for (size_t step = 1; step < width; step *= 2) {
      for (size_t i = 0; i < width; i += 2 * step) {
        for (size_t j = i; j < i + step; ++j) {
          const float sum = run[j] + run[j + step];
          run[j + step] = run[j] - run[j + step];
          run[j] = sum;
        }
      }
    }
    for (size_t i = 0; i < width; ++i) run[i] *= norm;
  }
}

void FlipSigns(size_t width, size_t count, float* values) {
  for (size_t i = 0; i < count; ++i) values[i] *= RotationSign(i % width);
}

void Rotate(size_t width, size_t count, float* values) {
  if (width == 1) return;
  FlipSigns(width, count, values);
  Hadamard(width, count, values);
}

void RotateBack(size_t width, size_t count, float* values) {
  if (width == 1) return;
  Hadamard(width, count, values);
  FlipSigns(width, count, values);
}

// Adds the distortion of a group of `m` elements to `*sums`: `value(i)` returns
// the source's and the decoded value of element i.
template <typename Value>
void Accumulate(size_t m, Value value, LaneSums* sums) {
  LaneSums group;
  const size_t half = (m + 1) / 2;
  for (size_t j = 0; j < half; ++j) {
    const size_t lane = j % kSumLanes;
    for (size_t i = j; i < m; i += half) {
      const auto [x, y] = value(i);
      const double e = y - x;
      group.x2[lane] += x * x;
      group.y2[lane] += y * y;
      group.e2[lane] += e * e;
      group.abs_e[lane] += std::abs(e);
      sums->max_abs_e = std::max(sums->max_abs_e, std::abs(e));
      sums->max_abs_x = std::max(sums->max_abs_x, std::abs(x));
    }
  }
  for (size_t lane = 0; lane < kSumLanes; ++lane) {
    sums->x2[lane] += group.x2[lane];
    sums->y2[lane] += group.y2[lane];
    sums->e2[lane] += group.e2[lane];
    sums->abs_e[lane] += group.abs_e[lane];
  }
}

// Quantizes `values` in place, group by group, into scales and codes.
template <typename Codes>
EncodeFault Quantize(BlockLayout layout, float* values, uint8_t* payload) {
  uint8_t* codes = payload + ScalesSize(layout.count, layout.group);
  for (size_t first = 0; first < layout.count; first += layout.group) {
    const size_t m = std::min(layout.group, layout.count - first);
    float* const x = values + first;
    size_t largest = 0;
    for (size_t i = 1; i < m; ++i) {
      if (std::abs(x[i]) > std::abs(x[largest])) largest = i;
    }
    const uint16_t scale_bits =
        FloatToHalf(std::abs(x[largest]) / Codes::kDivisor);
    if (scale_bits >= kHalfInfinity) {
      return {EncodeFault::Kind::kScaleOverflow, first + largest};
    }
    std::memcpy(payload + 2 * (first / layout.group), &scale_bits,
                sizeof(scale_bits));
    const float scale = HalfToFloat(scale_bits);
    std::memset(codes, 0, Codes::Size(m));
    for (size_t i = 0; i < m; ++i) {
      const int q =
          scale_bits == 0
              ? 0
              : static_cast<int>(std::clamp(std::round(x[i] / scale),
                                            Codes::kLeast, Codes::kMax));
      Codes::Store(q, i, m, codes);
      x[i] = static_cast<float>(q) * scale;
    }
    codes += Codes::Size(m);
  }
  return {};
}

template <typename T, typename Codes>
EncodeFault Encode(const uint8_t* source, BlockLayout layout, uint8_t* payload,
                   uint8_t* decoded, DistortionSums* sums) {
  float values[kBlockElements];
  for (size_t i = 0; i < layout.count; ++i) {
    values[i] = T::Load(LoadBits<T>(source, i));
    if (!std::isfinite(values[i])) return {EncodeFault::Kind::kNotFinite, i};
  }
  Rotate(layout.rotation, layout.count, values);
  const EncodeFault fault = Quantize<Codes>(layout, values, payload);
  if (fault.kind != EncodeFault::Kind::kNone) return fault;
  RotateBack(layout.rotation, layout.count, values);
  LaneSums lanes;
  for (size_t first = 0; first < layout.count; first += layout.group) {
    const auto value = [&](size_t i) {
      const typename T::Bits y = T::Round(values[first + i]);
      if (decoded != nullptr) StoreBits<T>(y, decoded, first + i);
      return std::pair(T::Wide(LoadBits<T>(source, first + i)), T::Wide(y));
    };
    Accumulate(std::min(layout.group, layout.count - first), value, &lanes);
  }
  *sums = lanes.Total(layout.count);
  return {};
}

template <typename T, typename Codes>
bool Decode(const uint8_t* payload, BlockLayout layout, uint8_t* decoded) {
  float values[kBlockElements];
  const uint8_t* codes = payload + ScalesSize(layout.count, layout.group);
  for (size_t first = 0; first < layout.count; first += layout.group) {
    const size_t m = std::min(layout.group, layout.count - first);
    uint16_t scale_bits;
    std::memcpy(&scale_bits, payload + 2 * (first / layout.group),
                sizeof(scale_bits));
    if (scale_bits >= kHalfInfinity || !Codes::Padded(codes, m)) return false;
    const float scale = HalfToFloat(scale_bits);
    for (size_t i = 0; i < m; ++i) {
      values[first + i] = static_cast<float>(Codes::Load(codes, i, m)) * scale;
    }
    codes += Codes::Size(m);
  }
  RotateBack(layout.rotation, layout.count, values);
  for (size_t i = 0; i < layout.count; ++i) {
    StoreBits<T>(T::Round(values[i]), decoded, i);
  }
  return true;
}

template <typename T>
void AddToRow(const uint8_t* source, const uint8_t* decoded, size_t first,
              size_t count, ChannelSums channels, RowLanes* lanes) {
  for (size_t c = first; c < count; ++c) {
    const typename T::Bits bits = LoadBits<T>(source, c);
    const bool finite = std::isfinite(T::Load(bits));
    const double x = finite ? T::Wide(bits) : 0;
    const double e = finite ? T::Wide(LoadBits<T>(decoded, c)) - x : 0;
    lanes->x2[c % kSumLanes] += x * x;
    lanes->e2[c % kSumLanes] += e * e;
    if (channels.d == nullptr) continue;
    const double d = x - channels.origins[c];
    lanes->d2[c % kSumLanes] += d * d;
    channels.d[c] += d;
  }
}

template <typename T>
void Measure(const uint8_t* source, const uint8_t* decoded, size_t rows,
             size_t columns, ChannelSums channels, RowSums* sums) {
  const size_t size = columns * sizeof(typename T::Bits);
  for (size_t row = 0; row < rows; ++row) {
    RowLanes lanes = {};
    AddToRow<T>(source + row * size, decoded + row * size, 0, columns, channels,
                &lanes);
    sums[row] = lanes.Total();
  }
}

void Multiply(const int16_t* left, const int16_t* right, ProductShape shape,
              int32_t* product) {
  MultiplyColumns(left, right, shape, 0, product);
}

void Reflect(const int16_t* unit, size_t rows, size_t columns,
             int16_t* matrix) {
  ReflectColumns(unit, rows, columns, 0, matrix);
}

int16_t Saturate(int32_t value) {
  return static_cast<int16_t>(std::clamp(value, -32768, 32767));
}

template <typename Codes>
constexpr GroupedKernels Grouped() {
  return {{Encode<F32, Codes>, Encode<F16, Codes>, Encode<BF16, Codes>,
           Encode<F8E4M3, Codes>, Encode<F8E5M2, Codes>, Encode<F64, Codes>},
          {Decode<F32, Codes>, Decode<F16, Codes>, Decode<BF16, Codes>,
           Decode<F8E4M3, Codes>, Decode<F8E5M2, Codes>, Decode<F64, Codes>}};
}

const KernelSet kPortable = {
    .name = "portable",
    .int4 = Grouped<Codes4>(),
    .int8 = Grouped<Codes8>(),
    .measure = {Measure<F32>, Measure<F16>, Measure<BF16>, Measure<F8E4M3>,
                Measure<F8E5M2>, Measure<F64>},
    .multiply = Multiply,
    .reflect = Reflect,
    .rows = PortableRows(),
    .rans = PortableRans(),
    .joint = &PortableJoint(),
};
static_assert(static_cast<int>(DType::kF32) == 0 &&
              static_cast<int>(DType::kF16) == 1 &&
              static_cast<int>(DType::kBF16) == 2 &&
              static_cast<int>(DType::kF8E4M3) == 3 &&
              static_cast<int>(DType::kF8E5M2) == 4 &&
              static_cast<int>(DType::kF64) == 5);

}  // namespace

const KernelSet& Portable() { return kPortable; }

void TakeTypesOfPortable(DType first, KernelSet* set) {
  const auto take = [first](const auto& from, auto& to) {
    std::copy(std::begin(from) + static_cast<int>(first), std::end(from),
              std::begin(to) + static_cast<int>(first));
  };
  take(kPortable.int4.encode, set->int4.encode);
  take(kPortable.int4.decode, set->int4.decode);
  take(kPortable.int8.encode, set->int8.encode);
  take(kPortable.int8.decode, set->int8.decode);
  take(kPortable.measure, set->measure);
  take(kPortable.rows.load, set->rows.load);
  take(kPortable.rows.largest, set->rows.largest);
  take(kPortable.rows.store, set->rows.store);
  take(kPortable.rows.compare, set->rows.compare);
}

void MultiplyColumns(const int16_t* left, const int16_t* right,
                     ProductShape shape, size_t first, int32_t* product) {
  for (size_t row = 0; row < shape.rows; ++row) {
    int32_t* const out = product + row * shape.columns;
    std::fill(out + first, out + shape.columns, 0);
    for (size_t k = 0; k < shape.inner; k += 2) {
      const int32_t even = left[row * shape.inner + k];
      const int32_t odd = left[row * shape.inner + k + 1];
      const int16_t* const pairs = right + k * shape.columns;
      for (size_t j = first; j < shape.columns; ++j) {
        // Unsigned, so that sums may wrap.
        out[j] =
            static_cast<int32_t>(static_cast<uint32_t>(out[j]) +
                                 static_cast<uint32_t>(even * pairs[2 * j]) +
                                 static_cast<uint32_t>(odd * pairs[2 * j + 1]));
      }
    }
  }
}

void ReflectColumns(const int16_t* unit, size_t rows, size_t columns,
                    size_t first, int16_t* matrix) {
  int32_t products[kMaxReflected];
  MultiplyColumns(unit, matrix, {.rows = 1, .inner = rows, .columns = columns},
                  first, products);
  for (size_t j = first; j < columns; ++j) {
    const int32_t w = Saturate((products[j] + 8192) >> 14);
    for (size_t k = 0; k < rows; ++k) {
      int16_t& element = matrix[(k / 2 * columns + j) * 2 + k % 2];
      element = Saturate(element - ((((unit[k] * w) >> 14) + 1) >> 1));
    }
  }
}

void AddToRow(DType dtype, const uint8_t* source, const uint8_t* decoded,
              size_t first, size_t count, ChannelSums channels,
              RowLanes* lanes) {
  using Add = void (*)(const uint8_t*, const uint8_t*, size_t, size_t,
                       ChannelSums, RowLanes*);
  static constexpr Add kAdd[kDTypes] = {AddToRow<F32>,    AddToRow<F16>,
                                        AddToRow<BF16>,   AddToRow<F8E4M3>,
                                        AddToRow<F8E5M2>, AddToRow<F64>};
  kAdd[static_cast<size_t>(dtype)](source, decoded, first, count, channels,
                                   lanes);
}

}  // namespace kvcompress::kernels
