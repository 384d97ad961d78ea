// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Arithmetic on the rows of a tensor, its tokens, as ecsq and klt need it:
// types, distortion, rotary embedding, statistics of channels, quantizing and
// its reverse. IEEE 754 binary32, nearest even, no contraction, subnormals
// kept; every set produces the portable one's bits.

#ifndef KVCOMPRESS_KERNELS_ROWS_H_
#define KVCOMPRESS_KERNELS_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/rans.h"
#include "kvcompress/dtype.h"

namespace kvcompress::kernels {

// Number of types that codecs take for numbers; tables of kernels are indexed
// by DType.
inline constexpr size_t kDTypes = 6;
static_assert(IsNumber(static_cast<DType>(kDTypes - 1)) &&
              !IsNumber(static_cast<DType>(kDTypes)));

// Elements (little-endian, any alignment) to values, exactly, but F64 to
// nearest even. Returns the largest magnitude as the bits of a binary32:
// 0x7f800000 and above where one is not finite.
using LoadValues = uint32_t (*)(const uint8_t* elements, size_t count,
                                float* values);

// That magnitude alone; 0 of no elements.
using LargestBits = uint32_t (*)(const uint8_t* elements, size_t count);

// The reverse, to nearest even; what would become infinity becomes the largest
// finite value of its sign, for F64 that of binary32. REQUIRES: no value is
// NaN.
using StoreValues = void (*)(const float* values, size_t count,
                             uint8_t* elements);

// Adds what the finite elements [first, end) lost. Element i goes to lane i mod
// kSumLanes of kernels/lane_sums.h, so that the parts of a block, one after the
// other, yield the sums of the whole.
struct LaneSums;
using CompareElements = void (*)(const uint8_t* source, const uint8_t* decoded,
                                 size_t first, size_t end, LaneSums* lanes);

// Rotary embedding of rows of 2 * pairs channels.
struct RotationShape {
  size_t tokens = 0;
  size_t pairs = 0;
  // Pair i is the channels 2i and 2i + 1; else i and i + pairs.
  bool interleaved = false;
  // The inverse rotation: sines are negated.
  bool back = false;
};

// Cosine and sine of a phase in 2^-64 turns, from integers and without libm:
// see core/FORMAT.md, "ecsq".
struct CosSin {
  float cos;
  float sin;
};
CosSin CosSinOf(uint64_t phase);

// The cosines, then the sines, of each token: [tokens, 2, pairs]. The phase of
// pair i at token t is (first + t) * increments[i], modulo 2^64.
using FillRotation = void (*)(const uint64_t* increments, size_t pairs,
                              uint64_t first, size_t tokens, float* table);

// Rotates rows [tokens, 2 * pairs] in place: x, y become x cos - y sin,
// y cos + x sin.
using RotateRows = void (*)(const float* table, RotationShape shape,
                            float* values);

// Rotates the rows inversely, token t by t times the angle of each pair, [2,
// pairs], and adds them up: sums [2, pairs] of the first and of the second
// channels. In binary32, the rotations by repeated multiplication: accurate
// enough to distinguish embeddings.
using SumTurnedBack = void (*)(const float* turn, RotationShape shape,
                               const float* values, float* sums);

// A matrix [rows, columns] whose rows are `stride` values apart.
struct MatrixShape {
  size_t rows = 0;
  size_t columns = 0;
  size_t stride = 0;
};

// Adds each column's values and their squares to x[column] and x2[column], in
// binary64 and in the order of the rows. Returns the largest magnitude.
using SumColumns = float (*)(const float* values, MatrixShape shape, double* x,
                             double* x2);

// Sum of the squares in binary64: lanes as in CompareElements, added in order.
using SumSquares = double (*)(const float* values, size_t count);

// Quanta are within -kMaxQuantum .. kMaxQuantum.
inline constexpr int32_t kMaxQuantum = 1 << 20;

// Multiplies each row of a matrix [rows, columns] by its factor.
using ScaleRows = void (*)(const float* factors, size_t rows, size_t columns,
                           float* values);

// How values are quantized: (value - mean) * inverse to the nearest integer,
// half away from zero. With decision thresholds, a magnitude rounded to n
// becomes n - 1 if it is below
// thresholds[threshold_offsets[column] + min(n, kThresholdCount - 1)].
inline constexpr int32_t kThresholdCount = 64;
struct QuantizeStep {
  float inverse = 1;
  const float* means = nullptr;                // of each column
  const float* thresholds = nullptr;           // or null
  const int32_t* threshold_offsets = nullptr;  // of each column
};
// Quantizes a matrix [rows, columns].
using QuantizeRows = void (*)(const float* values, size_t rows, size_t columns,
                              const QuantizeStep& step, int32_t* quanta);

// The reverse: (8 * quantum + means[column] * 2^shift) * unit * norms[row], the
// sum in integers that fit a binary32.
struct DequantizeStep {
  const int32_t* means = nullptr;  // of each column, in eighths of a step
  int shift = 0;
  float unit = 1;                // an eighth of a step, after the shift
  const float* norms = nullptr;  // or null
};
// Rows of quanta and of values are equally far apart.
using DequantizeRows = void (*)(const int32_t* quanta, MatrixShape shape,
                                const DequantizeStep& step, float* values);
// The same of rows of kRansLanes symbols, the first `columns` of each.
using DequantizeSymbols = void (*)(const int8_t* symbols, MatrixShape shape,
                                   const DequantizeStep& step, float* values);

// The codes of up to kRansLanes columns for kernels/rans.h, `kRansLanes` of
// them for each row: base[column] + quantum. Stops at a row with a magnitude
// above most[column], whose codes are unspecified. Returns the rows done.
using CodeRows = size_t (*)(const int32_t* quanta, MatrixShape shape,
                            const int32_t* base, const int32_t* most,
                            uint16_t* codes);

// The reverse: widens rows of kRansLanes symbols to `columns` quanta. Stops at
// a row that has -128 among them. Returns the rows done.
using WidenRows = size_t (*)(const int8_t* symbols, MatrixShape shape,
                             int32_t* quanta);

struct RowKernels {
  LoadValues load[kDTypes];
  LargestBits largest[kDTypes];
  StoreValues store[kDTypes];
  CompareElements compare[kDTypes];
  FillRotation fill_rotation;
  RotateRows rotate;
  SumTurnedBack sum_turned_back;
  SumColumns sum_columns;
  SumSquares sum_squares;
  ScaleRows scale;
  QuantizeRows quantize;
  DequantizeRows dequantize;
  DequantizeSymbols dequantize_symbols;
  CodeRows code;
  WidenRows widen;
};

const RowKernels& PortableRows();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_ROWS_H_
