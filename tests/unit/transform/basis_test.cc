// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "transform/basis.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace kvcompress {
namespace {

constexpr size_t kMaxVectors = 128;  // of klt

// Lengths of the rows of a matrix that should be orthogonal, and products.
void ExpectOrthogonal(const coding::Matrix& matrix, const std::string& what) {
  const size_t n = matrix.size();
  for (size_t a = 0; a < n; a += 5) {
    for (size_t b = a; b < n; b += 7) {
      double product = 0;
      for (size_t i = 0; i < n; ++i) {
        product += 1.0 * matrix.at(a, i) * matrix.at(b, i);
      }
      product *= 0x1p-28;
      EXPECT_NEAR(product, a == b ? 1 : 0, 0.01)
          << what << " " << a << " " << b;
    }
  }
}

TEST(Basis, IsOrthogonalWhateverTheIntegers) {
  constexpr size_t kSize = 256;
  std::mt19937 random(3);
  const auto make = [&](const auto& integer) {
    coding::Reflectors reflectors(kSize);
    while (reflectors.count() < kMaxVectors) {
      std::vector<int32_t> integers(reflectors.NextLength());
      for (size_t i = 0; i < integers.size(); ++i) {
        integers[i] = integer(reflectors.count(), i);
      }
      reflectors.Append(integers);
    }
    return coding::MakeMatrix(reflectors);
  };
  ExpectOrthogonal(make([](size_t, size_t) { return 0; }), "zero");
  ExpectOrthogonal(make([](size_t, size_t) { return 32767; }), "largest");
  ExpectOrthogonal(make([](size_t, size_t) { return -32767; }), "least");
  ExpectOrthogonal(
      make([](size_t, size_t i) { return i % 2 ? 32767 : -32767; }),
      "alternating");
  ExpectOrthogonal(make([](size_t, size_t i) { return i == 0 ? 1 : 0; }),
                   "first axis");
  ExpectOrthogonal(make([](size_t j, size_t i) { return i == j ? 32767 : 0; }),
                   "one");
  ExpectOrthogonal(make([](size_t, size_t i) { return i == 9 ? 1 : 32767; }),
                   "all but one");
  ExpectOrthogonal(make([&](size_t, size_t) {
                     return static_cast<int32_t>(random() % 65535) - 32767;
                   }),
                   "random");
  ExpectOrthogonal(make([&](size_t, size_t) {
                     return static_cast<int32_t>(random() % 3) - 1;
                   }),
                   "small");
}

TEST(Basis, ReflectsTheFirstReflectorToAnAxis) {
  coding::Reflectors reflectors(3);
  reflectors.Append({3, 4, 0});
  const coding::Matrix matrix = coding::MakeMatrix(reflectors);
  // The component of (3, 4, 0), turned round.
  EXPECT_NEAR(matrix.at(0, 0), -0.6 * 16384, 2);
  EXPECT_NEAR(matrix.at(0, 1), -0.8 * 16384, 2);
  EXPECT_EQ(matrix.at(0, 2), 0);
  EXPECT_EQ(matrix.at(2, 2), 16384);
}

}  // namespace
}  // namespace kvcompress
