// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Arithmetic that klt and klt-profile alone need: tokens of a group of heads to
// 16-bit integers and back, and what takes the time when the principal axes of
// a symmetric matrix are found. IEEE 754 binary32, nearest even, no
// contraction, and sums in a fixed order: every set produces the portable one's
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
// its v. The sum is that of the even rows, and then of the odd ones.
using ReflectRows = void (*)(const float* v, float factor, RowsShape shape,
                             float* matrix);

// So many columns stay in the nearest cache from one reflection to the next.
inline constexpr size_t kReflectedColumns = 32;

// Matrices of binary32: `left` [rows, inner] and `right` [inner, columns], with
// their rows so far apart.
struct FloatFactors {
  const float* left;
  size_t left_stride;
  const float* right;
  size_t right_stride;
  size_t inner;
};
// Adds their product to `sums`: to each sum, its products one after the other.
using AddFloatProduct = void (*)(const FloatFactors& factors, RowsShape shape,
                                 float* sums);

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

// A symmetric matrix: entry i of `off_diagonal` is at (i, i + 1), and the last
// is 0.
struct Tridiagonal {
  const float* diagonal;
  const float* off_diagonal;
  size_t size;
};

// So many eigenvalues or eigenvectors are found at once.
inline constexpr size_t kEigenLanes = 32;

// Eigenvalues number `first` and on, from the largest, by bisection of
// [low, high], which has all of them.
using FindEigenvalues = void (*)(const Tridiagonal& matrix, size_t first,
                                 float low, float high, float* values);

// One inverse iteration from the columns of `vectors`, [size, stride], to
// eigenvectors of length 1 of these values. Pivots are clamped to `tiny`.
// With `begins`, an iteration before it that solves with U alone, for columns
// that have nothing of the matrix yet. `memory` has space for size rows.
struct FactorsOfRow;
using FindEigenvectors = void (*)(const Tridiagonal& matrix,
                                  const float* values, float tiny, bool begins,
                                  FactorsOfRow* memory, size_t stride,
                                  float* vectors);

// A strip of a matrix of 16-bit integers has so many columns, a line of a cache
// in each row. Tokens are made of its rows by so many at a time.
inline constexpr size_t kStripColumns = 32;
inline constexpr size_t kRowsAtOnce = 8;

// A token: row rows[k] is taken factors[k] times, `count` of them, a multiple
// of kRowsAtOnce.
struct SparseToken {
  const uint16_t* rows;
  const int16_t* factors;
  size_t count;
  float unit;
};
// What the sums of a column become: sum * (unit * scales[column]) +
// means[column], where something may be added to the sum first: of each token
// a row of kStripColumns, so far apart; or null.
struct StripFinish {
  const float* scales;
  const float* means;
  const int32_t* more = nullptr;
  size_t more_stride = 0;
};
// Writes the values of tokens, kStripColumns of each, `stride` apart, from a
// strip that begins with a line of a cache. Sums are modulo 2^32.
using RestoreStrip = void (*)(const int16_t* strip, const SparseToken* tokens,
                              size_t count, const StripFinish& finish,
                              size_t stride, float* values);

// The unit vector of integers of at most 2^15 - 1 in magnitude, 15 bits after
// the point: (|integer| * factor + half) * inverse, rounded down after 2^-33
// more, at most 32767, with the integer's sign. In binary64.
struct UnitScale {
  double factor;
  double half;
  double inverse;
};
using ScaleToUnit = void (*)(const int32_t* integers, size_t count,
                             const UnitScale& scale, int16_t* unit);

struct TileKernels;  // kernels/tiles.h

struct JointKernels {
  NarrowLevels narrow;
  FinishRows finish;
  QuantizeParts quantize_parts;
  PairRows pair_rows;
  UpdateSymmetric update_symmetric;
  ReflectRows reflect_rows;
  AddFloatProduct add_float_product;
  ScaleToUnit scale_to_unit;
  RestoreStrip restore_strip;
  FindEigenvalues find_eigenvalues;
  FindEigenvectors find_eigenvectors;
  // Null where products are faster without them.
  const TileKernels* tiles = nullptr;
};

const JointKernels& PortableJoint();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_JOINT_H_
