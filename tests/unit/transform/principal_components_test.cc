// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "transform/principal_components.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "transform/loadings.h"

namespace kvcompress::coding {
namespace {

TEST(PrincipalComponents, OfADiagonalMatrixAreItsAxes) {
  std::vector<float> matrix(16);
  for (size_t i = 0; i < 4; ++i)
    matrix[5 * i] = 1.0f / static_cast<float>(1 + (i + 2) % 4);
  const PrincipalComponents components = FindPrincipalComponents(matrix, 4, 3);
  ASSERT_EQ(components.values.size(), 3);
  const size_t order[] = {2, 3, 0};
  for (size_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(components.values[j], 1 / static_cast<float>(j + 1), 1e-6);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(std::abs(components.vectors[i * components.stride + j]),
                  i == order[j] ? 1 : 0, 1e-5);
    }
  }
}

TEST(PrincipalComponents, OfTwoChannelsThatMoveTogether) {
  const std::vector<float> matrix = {1, 0.5f, 0.5f, 1};
  const PrincipalComponents components = FindPrincipalComponents(matrix, 2, 2);
  ASSERT_EQ(components.values.size(), 2);
  EXPECT_NEAR(components.values[0], 1.5, 1e-6);
  EXPECT_NEAR(components.values[1], 0.5, 1e-6);
  const float* const first = components.vectors.data();
  const float* const second = first + components.stride;
  EXPECT_NEAR(first[0] * second[0], 0.5, 1e-6);
  EXPECT_NEAR(first[1] * second[1], -0.5, 1e-6);
}

TEST(PrincipalComponents, AreNoMoreThanThereAre) {
  std::vector<float> matrix(64 * 64);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j < 64; ++j) {
      matrix[i * 64 + j] =
          static_cast<float>((i + 1) * (j + 1)) / (64.0f * 64.0f);
    }
  }
  const PrincipalComponents components =
      FindPrincipalComponents(matrix, 64, 32);
  ASSERT_GE(components.values.size(), 1);
  EXPECT_LE(components.values.size(), 2);
  EXPECT_NEAR(
      components.vectors[63 * components.stride] / components.vectors[0], 64,
      0.1);
}

// Of one channel alone, and of channels that fill no vector.
TEST(PrincipalComponents, AreEigenvectorsAtRightAngles) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const size_t size : {1, 2, 3, 17, 64, 100, 192, 256}) {
    // Variances that fall by six orders of magnitude, mixed.
    std::vector<float> mix(size * size);
    for (float& each : mix) each = normal(random);
    std::vector<float> matrix(size * size);
    for (size_t k = 0; k < size; ++k) {
      const float variance = std::pow(
          10.0f, -6 * static_cast<float>(k) / static_cast<float>(size));
      for (size_t i = 0; i < size; ++i) {
        for (size_t j = 0; j < size; ++j) {
          matrix[i * size + j] +=
              variance * mix[k * size + i] * mix[k * size + j];
        }
      }
    }
    float largest = 0;
    for (size_t i = 0; i < size; ++i) {
      largest = std::max(largest, matrix[i * size + i]);
    }
    for (float& each : matrix) each /= largest;
    const size_t most = std::min<size_t>(size, 96);
    const PrincipalComponents components =
        FindPrincipalComponents(matrix, size, most);
    EXPECT_GT(components.values.size(), most / 2) << size;
    for (size_t a = 0; a < components.values.size(); ++a) {
      const auto vector = [&](size_t component, size_t number) {
        return double{1} *
               components.vectors[component * components.stride + number];
      };
      if (a > 0) {
        EXPECT_LE(components.values[a], components.values[a - 1]) << size;
      }
      double error = 0;
      for (size_t i = 0; i < size; ++i) {
        double product = 0;
        for (size_t j = 0; j < size; ++j) {
          product += matrix[i * size + j] * vector(j, a);
        }
        error += std::pow(product - components.values[a] * vector(i, a), 2);
      }
      EXPECT_LT(std::sqrt(error), 2e-5 * components.values[0])
          << size << " " << a;
      for (size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (size_t i = 0; i < size; ++i) {
          product += vector(i, a) * vector(i, b);
        }
        EXPECT_NEAR(product, a == b ? 1 : 0, 0.02) << size << " " << a << b;
      }
    }
  }
}

// Channels in groups that are alike: each group has one eigenvalue, all of them
// the same, and the others are zero.
TEST(PrincipalComponents, OfManyEqualEigenvaluesAreAtRightAngles) {
  for (const size_t together : {1, 2, 32}) {
    constexpr size_t kSize = 192;
    std::vector<float> matrix(kSize * kSize);
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t j = 0; j < kSize; ++j) {
        matrix[i * kSize + j] = i / together == j / together ? 1.0f : 0.0f;
      }
    }
    const size_t wanted = std::min<size_t>(96, kSize / together);
    const PrincipalComponents components =
        FindPrincipalComponents(matrix, kSize, 96);
    ASSERT_EQ(components.values.size(), wanted) << together;
    for (size_t a = 0; a < wanted; ++a) {
      EXPECT_NEAR(components.values[a], together, 1e-3) << together;
      for (size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (size_t i = 0; i < kSize; ++i) {
          const float* const row = &components.vectors[i * components.stride];
          product += 1.0 * row[a] * row[b];
        }
        EXPECT_NEAR(product, a == b ? 1 : 0, 1e-3) << together;
      }
    }
  }
}

// Found by the fuzzer: what makes integers of such values was infinite.
TEST(Covariance, OfValuesThatAreNextToNothing) {
  const std::vector<float> values = {1e-37f, -1e-37f, -1e-37f, 1e-37f};
  const std::vector<const float*> rows = {&values[0], &values[2]};
  Covariance covariance(2);
  covariance.Add(rows, 2, std::vector<float>(2), 1e-37f, 2e-74);
  EXPECT_NEAR(covariance.at(0, 0), 2e-74, 1e-75);
  EXPECT_NEAR(covariance.at(0, 1), -2e-74, 1e-75);
}

// Eigenvalues that are all the same have no vectors of their own.
TEST(Loadings, OfChannelsWithNothingInCommonAreAtRightAngles) {
  constexpr size_t kSize = 32;
  // Each token has one channel, in turn up and down.
  std::vector<float> values(2 * kSize * kSize);
  std::vector<const float*> rows;
  for (size_t t = 0; t < 2 * kSize; ++t) {
    values[t * kSize + t / 2] = t % 2 == 0 ? 3.0f : -3.0f;
    rows.push_back(&values[t * kSize]);
  }
  Covariance covariance(kSize);
  covariance.Add(rows, kSize, std::vector<float>(kSize), 3, 18);
  const Loadings loadings = FindLoadings(covariance, 8);
  ASSERT_EQ(loadings.count, 8);
  for (size_t a = 0; a < 8; ++a) {
    for (size_t b = 0; b <= a; ++b) {
      double product = 0;
      for (size_t i = 0; i < kSize; ++i) {
        const float* const row = &loadings.columns[i * loadings.stride];
        product += 1.0 * row[a] * row[b];
      }
      EXPECT_NEAR(product, a == b ? 9.0 / kSize : 0, 1e-4) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace kvcompress::coding
