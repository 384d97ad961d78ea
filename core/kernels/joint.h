// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Arithmetic that klt alone needs: tokens of a group of heads to 16-bit
// integers and back, and the passes over a symmetric matrix that take the time
// when its principal axes are found. IEEE 754 binary32, nearest even, no
// contraction, and sums in a fixed order: every set gives the portable one's
// bits.

#ifndef KVCOMPRESS_KERNELS_JOINT_H_
#define KVCOMPRESS_KERNELS_JOINT_H_

#include <cstddef>
#include <cstdint>

namespace kvcompress::kernels {

// Columns come in whole multiples of this.
inline constexpr size_t kSymmetricColumns = 16;

// A run of rows, `stride` values apart, and of their columns.
struct RowsShape {
  size_t rows = 0;
  size_t columns = 0;  // a multiple of kSymmetricColumns
  size_t stride = 0;
};

// Subtracts v w' + w v' from the rows, v and w at row r being v_of_row[r] and
// w_of_row[r], and adds u[r] times the new row to `product`.
struct SymmetricUpdate {
  const float* v;  // of the columns
  const float* w;
  const float* v_of_row;
  const float* w_of_row;
  const float* u_of_row;
};
using UpdateSymmetric = void (*)(const SymmetricUpdate& update, RowsShape shape,
                                 float* matrix, float* product);

// Subtracts from row r v[r] times the sum of all rows, each times `factor` and
// its v.
using ReflectRows = void (*)(const float* v, float factor, RowsShape shape,
                             float* matrix);

// Levels [rows, columns] to 16 bits, saturated, rows of the result `padded`
// apart and what is left of each untouched, and the sum of the magnitudes of
// each row: at most 256, all below 2^22.
using NarrowLevels = void (*)(const int32_t* levels, size_t rows,
                              size_t columns, size_t padded, int16_t* narrow,
                              int32_t* totals);

// How the sums of products of a token become the values of a head: sum *
// units[row] + means[column], then times norms[row] if there are norms.
struct FinishStep {
  const float* units = nullptr;
  const float* means = nullptr;
  const float* norms = nullptr;
};
// Rows of `sums` are `stride` apart, those of `values` columns.
using FinishRows = void (*)(const int32_t* sums, size_t stride, size_t rows,
                            size_t columns, const FinishStep& step,
                            float* values);

// Values [rows, columns] of a head to 16 bits, rows of the result `padded`
// apart: (value - means[column]) * inverse to the nearest integer, half away
// from zero, saturated. Adds the squares of these integers before they are
// saturated to squares[row], in kSquareLanes sums that column i mod
// kSquareLanes goes to, and then in their order.
inline constexpr size_t kSquareLanes = 16;
using QuantizeParts = void (*)(const float* values, size_t rows, size_t columns,
                               const float* means, float inverse, size_t padded,
                               int16_t* parts, float* squares);

// Two rows of values, the second null for zeros, less the means and times
// `scale`, to the nearest integer, half to even, which must fit 16 bits:
// pairs[2 * column] and the one after it.
using PairRows = void (*)(const float* first, const float* second,
                          size_t columns, const float* means, float scale,
                          int16_t* pairs);

// Adds to `products` those of the columns of a matrix [2 * pairs, columns] with
// each other, which has its rows in pairs as the right matrix of a product
// does. Sums must fit 32 bits. [columns, columns]; what is added on the left of
// the diagonal is unspecified.
using MultiplyColumnsOf = void (*)(const int16_t* matrix, size_t pairs,
                                   size_t columns, int32_t* products);

struct JointKernels {
  NarrowLevels narrow;
  FinishRows finish;
  QuantizeParts quantize_parts;
  PairRows pair_rows;
  MultiplyColumnsOf multiply_columns_of;
  UpdateSymmetric update_symmetric;
  ReflectRows reflect_rows;
};

const JointKernels& PortableJoint();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_JOINT_H_
