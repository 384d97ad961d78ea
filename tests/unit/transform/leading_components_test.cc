// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "transform/leading_components.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kvcompress/kernels.h"
#include "transform/principal_components.h"

namespace kvcompress::coding {
namespace {

// A covariance whose eigenvalues fall by half every `half` of them.
std::vector<float> Falling(size_t size, size_t rank, double half) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> matrix(size * size);
  std::vector<float> vector(size);
  for (size_t k = 0; k < rank; ++k) {
    const auto variance =
        static_cast<float>(std::pow(0.5, static_cast<double>(k) / half));
    for (float& each : vector) each = normal(random);
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j) {
        matrix[i * size + j] += variance * vector[i] * vector[j];
      }
    }
  }
  float largest = 0;
  for (size_t i = 0; i < size; ++i) {
    largest = std::max(largest, matrix[i * (size + 1)]);
  }
  for (float& each : matrix) each /= largest;
  return matrix;
}

double Product(const PrincipalComponents& components, size_t size, size_t a,
               size_t b) {
  double sum = 0;
  for (size_t i = 0; i < size; ++i) {
    sum += double{components.vectors[i * components.stride + a]} *
           components.vectors[i * components.stride + b];
  }
  return sum;
}

TEST(LeadingComponents, AreThoseOfAllComponents) {
  constexpr size_t kSize = 300;
  constexpr size_t kMax = 40;
  const std::vector<float> matrix = Falling(kSize, kSize, 12);
  const PrincipalComponents all = FindPrincipalComponents(matrix, kSize, kMax);
  const PrincipalComponents found = FindLeadingComponents(matrix, kSize, kMax);
  ASSERT_EQ(found.values.size(), kMax);
  ASSERT_EQ(found.stride, all.stride);
  for (size_t j = 0; j < kMax; ++j) {
    EXPECT_NEAR(found.values[j], all.values[j], 1e-4 * all.values[0]) << j;
    for (size_t k = 0; k <= j; ++k) {
      EXPECT_NEAR(Product(found, kSize, j, k), j == k, 1e-4) << j << " " << k;
    }
  }
  for (size_t j = 0; j < 8; ++j) {
    double product = 0;
    for (size_t i = 0; i < kSize; ++i) {
      product += double{found.vectors[i * found.stride + j]} *
                 all.vectors[i * all.stride + j];
    }
    EXPECT_NEAR(std::abs(product), 1, 1e-3) << j;
  }
}

TEST(LeadingComponents, AreNoMoreThanThereAre) {
  const std::vector<float> matrix = Falling(200, 12, 6);
  const PrincipalComponents found = FindLeadingComponents(matrix, 200, 50);
  EXPECT_EQ(found.values.size(), 12);
}

TEST(LeadingComponents, AreTheSameForEveryKernelSet) {
  const std::vector<float> matrix = Falling(130, 130, 20);
  const PrincipalComponents wanted = FindLeadingComponents(matrix, 130, 16);
  const std::string before(ActiveKernels());
  for (const char* name : {"portable", "sse4", "avx2", "avx512", "neon"}) {
    if (!SelectKernels(name).ok()) continue;
    EXPECT_EQ(FindLeadingComponents(matrix, 130, 16).vectors, wanted.vectors)
        << name;
  }
  ASSERT_TRUE(SelectKernels(before).ok());
}

}  // namespace
}  // namespace kvcompress::coding
