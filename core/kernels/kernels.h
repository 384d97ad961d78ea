// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The seam between codecs and arithmetic. A kernel holds no state and allocates
// nothing. The portable set defines the results; any other set produces the
// same payload, the same decoded bytes, the same faults, and the same sums to
// the last bit (see lane_sums.h).

#ifndef KVCOMPRESS_KERNELS_KERNELS_H_
#define KVCOMPRESS_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/rans.h"
#include "kernels/rows.h"
#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"

namespace kvcompress::kernels {

// Elements of a block of the format (core/FORMAT.md, section 5), and the widest
// rotation, which divides it.
inline constexpr size_t kBlockElements = 4096;
inline constexpr size_t kMaxRotation = 256;

// How the elements of a block are treated.
struct BlockLayout {
  size_t count = 0;     // elements, 1 to kBlockElements
  size_t group = 64;    // elements that share a scale: 32, 64 or 128
  size_t rotation = 1;  // width, a power of two that divides count; 1 for none
};

// Why a block was refused, and where.
struct EncodeFault {
  enum class Kind { kNone, kNotFinite, kScaleOverflow };
  Kind kind = Kind::kNone;
  size_t element = 0;  // index within the block
};

// Encodes the elements at `source` (little-endian, any alignment) into
// `payload`, which has space for BlockSize bytes. Writes the bytes that
// decoding produces to `decoded` unless it is null, and the distortion to
// `*sums`. After a fault the outputs are unspecified.
using EncodeBlock = EncodeFault (*)(const uint8_t* source, BlockLayout layout,
                                    uint8_t* payload, uint8_t* decoded,
                                    DistortionSums* sums);

// The reverse: BlockSize bytes to elements. False when the payload breaks the
// format.
using DecodeBlock = bool (*)(const uint8_t* payload, BlockLayout layout,
                             uint8_t* decoded);

// Bytes of a block of `bits`-bit codes, 4 or 8: the scales, then the codes.
constexpr size_t ScalesSize(size_t count, size_t group) {
  return (count / group + (count % group != 0)) * 2;
}
constexpr size_t BlockSize(int bits, size_t count, size_t group) {
  return ScalesSize(count, group) + (bits == 8 ? count : count / 2 + count % 2);
}

struct GroupedKernels {
  EncodeBlock encode[kDTypes];
  DecodeBlock decode[kDTypes];
};

// Sums over the elements of one token.
struct RowSums {
  double x2 = 0;
  double e2 = 0;
  double d2 = 0;  // of the differences to the origins of channels
};

// Sums over tokens for each channel, of the differences of source values to an
// origin. With a value of the channel as its origin, the sums keep what a
// channel's spread is, however large its values are.
struct ChannelSums {
  const float* origins = nullptr;  // finite
  double* d = nullptr;             // null: neither these sums nor RowSums::d2
};

// Measures rows of `columns` elements, the sums of each to `sums`, and adds
// their differences to `channels`, row after row. What is not finite in the
// source counts as 0, without an error. Any alignment.
using MeasureRows = void (*)(const uint8_t* source, const uint8_t* decoded,
                             size_t rows, size_t columns, ChannelSums channels,
                             RowSums* sums);

// The shape of a product of two matrices of 16-bit integers.
struct ProductShape {
  size_t rows = 0;     // of the left matrix and of the product
  size_t inner = 0;    // even
  size_t columns = 0;  // of the right matrix and of the product
};

// Writes the product [rows, columns] modulo 2^32: exact where sums fit an
// int32_t. `left` is [rows, inner]. `right` is [inner, columns] with its rows
// in pairs: element (k, j) is at [(k / 2 * columns + j) * 2 + k % 2]. It is
// fastest where it begins with a line of a cache.
using MultiplyInt16 = void (*)(const int16_t* left, const int16_t* right,
                               ProductShape shape, int32_t* product);

// Reflects the columns of a matrix [rows, columns], in pairs of rows as above,
// at a unit vector of `rows` components, 15 bits after the point: with
// w = Saturate((unit * matrix + 2^13) >> 14), which has a number for each
// column, element (k, j) becomes
// Saturate(element - (((unit[k] * w[j] >> 14) + 1) >> 1)).
// `rows` is even, `columns` at most kMaxReflected, and no component -32768.
inline constexpr size_t kMaxReflected = 256;
using ReflectInt16 = void (*)(const int16_t* unit, size_t rows, size_t columns,
                              int16_t* matrix);

struct JointKernels;

struct KernelSet {
  const char* name;
  GroupedKernels int4;
  GroupedKernels int8;
  MeasureRows measure[kDTypes];
  MultiplyInt16 multiply;
  ReflectInt16 reflect;
  RowKernels rows;
  RansKernels rans;
  const JointKernels* joint;  // kernels/joint.h
};

// The reference, in standard C++.
const KernelSet& Portable();

// For sets that have no kernels of their own for a type and those after it.
void TakeTypesOfPortable(DType first, KernelSet* set);

// Columns `first` and later of a product and of a reflection; for the other
// sets.
void MultiplyColumns(const int16_t* left, const int16_t* right,
                     ProductShape shape, size_t first, int32_t* product);
void ReflectColumns(const int16_t* unit, size_t rows, size_t columns,
                    size_t first, int16_t* matrix);

// Every set that this machine can run, the fastest first, and Portable() and
// one with PortableTiles() last.
absl::Span<const KernelSet* const> Available();

// The set in use: the fastest, unless SelectKernels said otherwise.
const KernelSet& Active();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_KERNELS_H_
