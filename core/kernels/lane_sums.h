// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How every set of kernels adds up the distortion of a block, so that all
// produce the same sums to the last bit: what is decided by them, such as by
// the codec `auto`, must not depend on the machine.
//
// Byte j of a group, of m elements, stands for the elements j and
// j + ceil(m / 2). These go to lane j mod 8, in the order of j, the lower
// element first. Lanes begin at 0 for each group and are then added to those of
// the block, whose lanes are added in order at its end. All of this in
// binary64: the square of a binary32 is exact in it, so that a fused
// multiply-add is none.

#ifndef KVCOMPRESS_KERNELS_LANE_SUMS_H_
#define KVCOMPRESS_KERNELS_LANE_SUMS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kvcompress/dtype.h"
#include "kvcompress/metrics.h"

namespace kvcompress::kernels {

inline constexpr size_t kSumLanes = 8;

struct LaneSums {
  alignas(64) double x2[kSumLanes] = {};
  alignas(64) double y2[kSumLanes] = {};
  alignas(64) double e2[kSumLanes] = {};
  alignas(64) double abs_e[kSumLanes] = {};
  double max_abs_e = 0;
  double max_abs_x = 0;

  DistortionSums Total(uint64_t count) const {
    DistortionSums sums;
    sums.count = count;
    for (size_t lane = 0; lane < kSumLanes; ++lane) {
      sums.sum_x2 += x2[lane];
      sums.sum_y2 += y2[lane];
      sums.sum_e2 += e2[lane];
      sums.sum_abs_e += abs_e[lane];
    }
    // From e = y - x.
    sums.sum_xy = (sums.sum_x2 + sums.sum_y2 - sums.sum_e2) / 2;
    sums.max_abs_e = max_abs_e;
    sums.max_abs_x = max_abs_x;
    return sums;
  }
};

// The same for a row of a tensor, a token: element c goes to lane c mod 8, and
// the lanes are added in order.
struct RowLanes {
  alignas(64) double x2[kSumLanes];
  alignas(64) double e2[kSumLanes];
  alignas(64) double d2[kSumLanes];

  RowSums Total() const {
    RowSums sums;
    for (size_t lane = 0; lane < kSumLanes; ++lane) {
      sums.x2 += x2[lane];
      sums.e2 += e2[lane];
      sums.d2 += d2[lane];
    }
    return sums;
  }
};

// The same for elements that are no group: element i goes to lane i mod 8, and
// these are first .. count - 1.
void AddToLanes(DType dtype, const uint8_t* source, const uint8_t* decoded,
                size_t first, size_t count, LaneSums* lanes);

// Adds the elements first .. count - 1 of a row.
void AddToRow(DType dtype, const uint8_t* source, const uint8_t* decoded,
              size_t first, size_t count, ChannelSums channels,
              RowLanes* lanes);

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_LANE_SUMS_H_
