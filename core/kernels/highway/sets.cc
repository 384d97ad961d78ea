// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/highway/sets.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/amx.h"
#include "kernels/vnni.h"
#include "kvcompress/dtype.h"

// This file is compiled once for each target. SSSE3 is as rare as a machine
// that has it and not SSE4; SVE's vectors have no fixed size.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/highway/sets.cc"
#include <hwy/foreach_target.h>

// The plainest target stands for machines without any other: portable.cc is
// what serves them.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
#include "kernels/highway/decode-inl.h"
#include "kernels/highway/encode-inl.h"
#include "kernels/highway/joint-inl.h"
#include "kernels/highway/multiply-inl.h"
#include "kernels/highway/rans-inl.h"
#include "kernels/highway/rope-inl.h"
#include "kernels/highway/row-inl.h"
#include "kernels/highway/rows-inl.h"
#include "kernels/highway/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {
namespace {

template <int kBits>
constexpr const GroupedKernels& PortableKernels() {
  return kBits == 4 ? Portable().int4 : Portable().int8;
}

template <class T, typename Codes, int kBits, int kType>
EncodeFault Encode(const uint8_t* source, BlockLayout layout, uint8_t* payload,
                   uint8_t* decoded, DistortionSums* sums) {
  LaneSums lanes;
  if (layout.count % layout.group == 0 &&
      (layout.rotation == 1
           ? EncodePlain<T, Codes>(source, layout, payload, decoded, &lanes)
           : EncodeRotated<T, Codes>(source, layout, payload, decoded,
                                     &lanes))) {
    *sums = lanes.Total(layout.count);
    return {};
  }
  return PortableKernels<kBits>().encode[kType](source, layout, payload,
                                                decoded, sums);
}

template <class T, int kBits, int kType>
bool Decode(const uint8_t* payload, BlockLayout layout, uint8_t* decoded) {
  if (layout.count % layout.group != 0) {
    return PortableKernels<kBits>().decode[kType](payload, layout, decoded);
  }
  return layout.rotation == 1
             ? DecodeGroups<T, kBits>(payload, layout, decoded)
             : DecodeRotated<T, kBits>(payload, layout, decoded);
}

template <typename Codes, int kBits>
constexpr GroupedKernels Grouped() {
  return {
      {Encode<F32, Codes, kBits, 0>, Encode<F16, Codes, kBits, 1>,
       Encode<BF16, Codes, kBits, 2>},
      {Decode<F32, kBits, 0>, Decode<F16, kBits, 1>, Decode<BF16, kBits, 2>}};
}

template <class T, DType kType, size_t kRows, bool kChannels>
void MeasureSome(const uint8_t* source, const uint8_t* decoded, size_t columns,
                 ChannelSums channels, RowSums* sums) {
  const size_t size = columns * sizeof(typename T::Bits);
  const size_t whole = columns - columns % kLeastAtOnce;
  RowLanes lanes[kRows];
  SumRows<T, kRows, kChannels>(source, decoded, columns, whole, channels,
                               lanes);
  for (size_t row = 0; row < kRows; ++row) {
    AddToRow(kType, source + row * size, decoded + row * size, whole, columns,
             channels, &lanes[row]);
    sums[row] = lanes[row].Total();
  }
}

template <class T, DType kType, bool kChannels>
void MeasureAll(const uint8_t* source, const uint8_t* decoded, size_t rows,
                size_t columns, ChannelSums channels, RowSums* sums) {
  const size_t size = columns * sizeof(typename T::Bits);
  size_t row = 0;
  for (; row + kRowsAtOnce <= rows; row += kRowsAtOnce) {
    MeasureSome<T, kType, kRowsAtOnce, kChannels>(source + row * size,
                                                  decoded + row * size, columns,
                                                  channels, sums + row);
  }
  for (; row < rows; ++row) {
    MeasureSome<T, kType, 1, kChannels>(source + row * size,
                                        decoded + row * size, columns, channels,
                                        sums + row);
  }
}

template <class T, DType kType>
void Measure(const uint8_t* source, const uint8_t* decoded, size_t rows,
             size_t columns, ChannelSums channels, RowSums* sums) {
  const auto measure = channels.d == nullptr ? MeasureAll<T, kType, false>
                                             : MeasureAll<T, kType, true>;
  measure(source, decoded, rows, columns, channels, sums);
}

}  // namespace

const KernelSet* Set() {
  static constexpr JointKernels kJoint = {
      .narrow = NarrowMatrix,
      .finish = FinishMatrix,
      .quantize_parts = QuantizeMatrixParts,
      .pair_rows = PairFloatRows,
      .update_symmetric = UpdateSymmetricRows,
      .reflect_rows = ReflectFloatRows,
      .add_float_product = AddProductOfFloats,
      .scale_to_unit = ScaleToUnitVector,
      .restore_strip = RestoreTokensOfStrip,
      .find_eigenvalues = FindEigenvaluesOf,
      .find_eigenvectors = FindEigenvectorsOf};
  static constexpr KernelSet kOwn = {
      .name = HWY_TARGET == HWY_SSE4   ? "sse4"
              : HWY_TARGET == HWY_AVX2 ? "avx2"
              : HWY_TARGET == HWY_AVX3 ? "avx512"
                                       : "neon",
      .int4 = Grouped<Codes4, 4>(),
      .int8 = Grouped<Codes8, 8>(),
      .measure = {Measure<F32, DType::kF32>, Measure<F16, DType::kF16>,
                  Measure<BF16, DType::kBF16>},
      .multiply = MultiplyMatrices,
      .reflect = ReflectMatrix,
      .rows = {.load = {LoadRow<F32, 0>, LoadRow<F16, 1>, LoadRow<BF16, 2>},
               .largest = {LargestOfRow<F32, 0>, LargestOfRow<F16, 1>,
                           LargestOfRow<BF16, 2>},
               .store = {StoreRow<F32, 0>, StoreRow<F16, 1>, StoreRow<BF16, 2>},
               .compare = {CompareRow<F32, DType::kF32>,
                           CompareRow<F16, DType::kF16>,
                           CompareRow<BF16, DType::kBF16>},
               .fill_rotation = FillRotationTable,
               .rotate = RotateMatrix,
               .sum_turned_back = SumMatrixTurnedBack,
               .sum_columns = SumMatrix,
               .sum_squares = SumRowSquares,
               .scale = ScaleMatrix,
               .quantize = QuantizeMatrix,
               .dequantize = DequantizeMatrix,
               .dequantize_symbols = DequantizeSymbolMatrix,
               .code = CodeMatrix,
               .widen = WidenMatrix},
      .rans = {.encode = EncodeRansRows, .decode = DecodeRansRows},
      .joint = &kJoint,
  };
  static const KernelSet kSet = [] {
    KernelSet set = kOwn;
    TakeTypesOfPortable(DType::kF8E4M3, &set);
    return set;
  }();
  return &kSet;
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace kvcompress::kernels {

#if HWY_TARGETS & HWY_AVX3
namespace {

// With what the processor has beyond the target.
const KernelSet* Avx512() {
  static const KernelSet* const set = [] {
    auto* const kernels = new KernelSet(*N_AVX3::Set());
    auto* const joint = new JointKernels(*kernels->joint);
    joint->restore_strip = VnniStrip();
    kernels->joint = joint;
    kernels->multiply = Vnni();
    return kernels;
  }();
  return set;
}

}  // namespace
#endif

std::vector<const KernelSet*> HighwaySets() {
  std::vector<const KernelSet*> sets;
  [[maybe_unused]] const int64_t supported = hwy::SupportedTargets();
#if HWY_TARGETS & HWY_AVX3
  if (supported & HWY_AVX3) {
    const bool vnni = Vnni() != nullptr;
    if (vnni && Amx() != nullptr) {
      sets.push_back(WithTiles(*Avx512(), Amx(), "amx"));
    }
    sets.push_back(vnni ? Avx512() : N_AVX3::Set());
  }
#endif
#if HWY_TARGETS & HWY_AVX2
  if (supported & HWY_AVX2) sets.push_back(N_AVX2::Set());
#endif
#if HWY_TARGETS & HWY_SSE4
  if (supported & HWY_SSE4) sets.push_back(N_SSE4::Set());
#endif
#if HWY_TARGETS & HWY_NEON
  if (supported & HWY_NEON) sets.push_back(N_NEON::Set());
#endif
  return sets;
}

}  // namespace kvcompress::kernels
#endif  // HWY_ONCE
