// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "kernels/rows.h"

namespace kvcompress::coding {
namespace {

TEST(Rope, SinesAreThoseOfTheMathematicians) {
  for (uint64_t i = 0; i < 4096; ++i) {
    const uint64_t phase = i * 0x0010123456789abc;
    const double angle = static_cast<double>(phase) * 0x1p-64 * 2 * M_PI;
    const kernels::CosSin got = kernels::CosSinOf(phase);
    EXPECT_NEAR(got.cos, std::cos(angle), 4e-8);
    EXPECT_NEAR(got.sin, std::sin(angle), 4e-8);
  }
  for (const size_t pairs : {1, 3, 32, 64}) {
    EXPECT_NEAR(static_cast<double>(RatioOf(10000, pairs)) * 0x1p-64,
                std::pow(10000, -1.0 / static_cast<double>(pairs)), 1e-14);
  }
}

}  // namespace
}  // namespace kvcompress::coding
