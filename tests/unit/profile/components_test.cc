// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/components.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace kvcompress::profile {
namespace {

constexpr size_t kSize = 320;

double Dot(const float* a, const float* b) {
  double sum = 0;
  for (size_t i = 0; i < kSize; ++i) sum += double{a[i]} * b[i];
  return sum;
}

// Of these variances, along components that random reflections make.
std::vector<float> CovarianceOf(const std::vector<double>& variances) {
  std::mt19937 engine(1);
  std::normal_distribution<double> normal;
  std::vector<double> matrix(kSize * kSize);
  for (size_t i = 0; i < kSize; ++i) matrix[i * kSize + i] = variances[i];
  std::vector<double> u(kSize);
  std::vector<double> product(kSize);
  for (int reflection = 0; reflection < 4; ++reflection) {
    double squares = 0;
    for (double& part : u) {
      part = normal(engine);
      squares += part * part;
    }
    for (double& part : u) part /= std::sqrt(squares);
    // (1 - 2 u u') M (1 - 2 u u')
    double middle = 0;
    for (size_t i = 0; i < kSize; ++i) {
      product[i] = 0;
      for (size_t j = 0; j < kSize; ++j) {
        product[i] += matrix[i * kSize + j] * u[j];
      }
      middle += u[i] * product[i];
    }
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t j = 0; j < kSize; ++j) {
        matrix[i * kSize + j] += 4 * middle * u[i] * u[j] -
                                 2 * (u[i] * product[j] + product[i] * u[j]);
      }
    }
  }
  std::vector<float> covariance(kSize * kSize);
  std::copy(matrix.begin(), matrix.end(), covariance.begin());
  return covariance;
}

void ExpectAtRightAngles(const Components& components) {
  for (size_t i = 0; i < components.values.size(); ++i) {
    const float* const row = &components.rows[i * kSize];
    ASSERT_NEAR(Dot(row, row), 1, 1e-4) << i;
    for (size_t j = 0; j < i; ++j) {
      ASSERT_NEAR(Dot(row, &components.rows[j * kSize]), 0, 1e-4)
          << i << " and " << j;
    }
  }
}

// A large one, and others by which it is so much larger, all equally far from
// their neighbours.
std::vector<double> Variances(double ratio) {
  std::vector<double> variances(kSize, 1);
  for (size_t i = 1; i < kSize; ++i) {
    variances[i] = static_cast<double>(kSize - i) / (kSize * ratio);
  }
  return variances;
}

TEST(Components, AreAtRightAngles) {
  for (const double ratio : {1, 100, 300, 1000, 10000, 1000000}) {
    const Components all = FindAllComponents(CovarianceOf(Variances(ratio)),
                                             kSize, kSize, /*tiny=*/true);
    ASSERT_EQ(all.values.size(), kSize) << ratio;
    ExpectAtRightAngles(all);
    const Components some = FindAllComponents(CovarianceOf(Variances(ratio)),
                                              kSize, 64, /*tiny=*/false);
    ExpectAtRightAngles(some);
  }
}

// What the first of them leave is no more than the best can.
TEST(Components, LeaveWhatIsLeast) {
  const std::vector<double> variances = Variances(300);
  const std::vector<float> covariance = CovarianceOf(variances);
  const Components all = FindAllComponents(covariance, kSize, kSize, true);
  ASSERT_EQ(all.values.size(), kSize);
  double left = 0;
  double least = 0;
  std::vector<float> product(kSize);
  for (size_t j = kSize / 2; j < kSize; ++j) {
    const float* const row = &all.rows[j * kSize];
    for (size_t i = 0; i < kSize; ++i) {
      product[i] = static_cast<float>(Dot(&covariance[i * kSize], row));
    }
    left += Dot(product.data(), row);
    least += variances[j];
  }
  EXPECT_LT(left, 1.01 * least);
}

}  // namespace
}  // namespace kvcompress::profile
