// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The seam between codecs and arithmetic. A kernel works on one block, holds no
// state and allocates nothing. The portable set defines the bytes; any other
// set gives the same payload and the same decoded bytes, and sums that agree
// within rounding.

#ifndef KVCOMPRESS_KERNELS_KERNELS_H_
#define KVCOMPRESS_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"

namespace kvcompress::kernels {

// Elements of a block of the format (core/FORMAT.md, section 5).
inline constexpr size_t kBlockElements = 4096;

// Why a block was refused, and where.
struct EncodeFault {
  enum class Kind { kNone, kNotFinite, kScaleOverflow };
  Kind kind = Kind::kNone;
  size_t element = 0;  // index within the block
};

// Encodes `count` elements, 1 to kBlockElements, at `source` (little-endian,
// any alignment) in groups of `group` (32, 64 or 128) into `payload`, which has
// room for Int4BlockSize(count, group) bytes. Writes the bytes that decoding
// gives to `decoded` unless it is null, and the distortion to `*sums`. After a
// fault the outputs are unspecified.
using Int4EncodeBlock = EncodeFault (*)(const uint8_t* source, size_t count,
                                        size_t group, uint8_t* payload,
                                        uint8_t* decoded, DistortionSums* sums);

// The reverse: Int4BlockSize(count, group) bytes to `count` elements. False
// when the payload breaks the format.
using Int4DecodeBlock = bool (*)(const uint8_t* payload, size_t count,
                                 size_t group, uint8_t* decoded);

// Bytes of an int4 block: the scales, then the codes.
constexpr size_t Int4ScalesSize(size_t count, size_t group) {
  return (count + group - 1) / group * 2;
}
constexpr size_t Int4BlockSize(size_t count, size_t group) {
  return Int4ScalesSize(count, group) + (count + 1) / 2;
}

// Number of compressible types; the tables below are indexed by DType.
inline constexpr size_t kDTypes = 3;

struct KernelSet {
  const char* name;
  Int4EncodeBlock int4_encode[kDTypes];
  Int4DecodeBlock int4_decode[kDTypes];
};

// The reference, in standard C++.
const KernelSet& Portable();

// The set in use.
const KernelSet& Active();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_KERNELS_H_
