// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/joint.h"
#include "kernels/kernels.h"

namespace kvcompress::kernels {
namespace {

std::vector<float> Normal(size_t count, float scale, std::mt19937* random) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(*random);
  return values;
}

TEST(JointKernels, NarrowAsThePortableOneDoes) {
  std::mt19937 random(1);
  constexpr size_t kRows = 3;
  for (const size_t columns : {1, 7, 16, 61, 192, 255, 256}) {
    const size_t padded = columns + columns % 2;
    std::vector<int32_t> levels(kRows * columns);
    for (int32_t& level : levels) {
      level = static_cast<int32_t>(random() % 2001) - 1000;
    }
    levels[0] = (1 << 21) + 5;
    levels.back() = -(1 << 21) - 5;
    std::vector<int16_t> wanted(kRows * padded, 9);
    int32_t wanted_totals[kRows];
    PortableJoint().narrow(levels.data(), kRows, columns, padded, wanted.data(),
                           wanted_totals);
    EXPECT_EQ(wanted[0], columns == 1 ? 32767 : wanted[0]);
    for (const KernelSet* set : Available()) {
      std::vector<int16_t> narrow(kRows * padded, 9);
      int32_t totals[kRows];
      set->joint->narrow(levels.data(), kRows, columns, padded, narrow.data(),
                         totals);
      EXPECT_EQ(narrow, wanted) << set->name << " " << columns;
      for (size_t r = 0; r < kRows; ++r) {
        EXPECT_EQ(totals[r], wanted_totals[r]) << set->name << " " << columns;
      }
    }
  }
}

TEST(JointKernels, FinishAsThePortableOneDoes) {
  std::mt19937 random(2);
  constexpr size_t kRows = 5;
  for (const size_t columns : {1, 8, 40, 64, 128}) {
    const size_t stride = columns + 3;
    std::vector<int32_t> sums(kRows * stride);
    for (int32_t& sum : sums) sum = static_cast<int32_t>(random());
    const std::vector<float> units = Normal(kRows, 1e-5f, &random);
    const std::vector<float> means = Normal(columns, 3, &random);
    const std::vector<float> norms = Normal(kRows, 2, &random);
    for (const float* const some :
         std::vector<const float*>{norms.data(), nullptr}) {
      const FinishStep step = {
          .units = units.data(), .means = means.data(), .norms = some};
      std::vector<float> wanted(kRows * columns);
      PortableJoint().finish(sums.data(), stride, kRows, columns, step,
                             wanted.data());
      for (const KernelSet* set : Available()) {
        std::vector<float> values(kRows * columns);
        set->joint->finish(sums.data(), stride, kRows, columns, step,
                           values.data());
        EXPECT_EQ(values, wanted) << set->name << " " << columns;
      }
    }
  }
}

TEST(JointKernels, QuantizePartsAsThePortableOneDoes) {
  std::mt19937 random(3);
  constexpr size_t kRows = 4;
  for (const size_t columns : {1, 16, 40, 64, 128}) {
    std::vector<float> values = Normal(kRows * columns, 100, &random);
    values[0] = 1e30f;
    values.back() = -40000;
    const std::vector<float> means = Normal(columns, 3, &random);
    std::vector<int16_t> wanted(kRows * columns);
    float wanted_squares[kRows] = {1, 2};
    PortableJoint().quantize_parts(values.data(), kRows, columns, means.data(),
                                   0.5f, columns, wanted.data(),
                                   wanted_squares);
    EXPECT_EQ(wanted[0], 32767);
    EXPECT_GE(wanted_squares[0], 0x1p30f);
    for (const KernelSet* set : Available()) {
      std::vector<int16_t> parts(kRows * columns);
      float squares[kRows] = {1, 2};
      set->joint->quantize_parts(values.data(), kRows, columns, means.data(),
                                 0.5f, columns, parts.data(), squares);
      EXPECT_EQ(parts, wanted) << set->name << " " << columns;
      for (size_t r = 0; r < kRows; ++r) {
        EXPECT_EQ(squares[r], wanted_squares[r]) << set->name << " " << columns;
      }
    }
  }
}

TEST(JointKernels, PairAndMultiplyColumnsAsThePortableOnesDo) {
  std::mt19937 random(4);
  constexpr size_t kTokens = 9;
  for (const size_t columns : {1, 7, 32, 40, 96, 192, 256}) {
    const std::vector<float> values = Normal(kTokens * columns, 1, &random);
    const std::vector<float> means = Normal(columns, 1, &random);
    const auto pairs_by = [&](const JointKernels& kernels) {
      std::vector<int16_t> pairs((kTokens + 1) * columns);
      for (size_t t = 0; t < kTokens; t += 2) {
        kernels.pair_rows(
            &values[t * columns],
            t + 1 < kTokens ? &values[(t + 1) * columns] : nullptr, columns,
            means.data(), 700, &pairs[t * columns]);
      }
      return pairs;
    };
    const auto products_by = [&](const JointKernels& kernels,
                                 const std::vector<int16_t>& pairs) {
      std::vector<int32_t> products(columns * columns, 5);
      kernels.multiply_columns_of(pairs.data(), (kTokens + 1) / 2, columns,
                                  products.data());
      return products;
    };
    const std::vector<int16_t> wanted = pairs_by(PortableJoint());
    const std::vector<int32_t> wanted_products =
        products_by(PortableJoint(), wanted);
    for (const KernelSet* set : Available()) {
      EXPECT_EQ(pairs_by(*set->joint), wanted) << set->name << " " << columns;
      const std::vector<int32_t> products = products_by(*set->joint, wanted);
      for (size_t i = 0; i < columns; ++i) {
        for (size_t j = i; j < columns; ++j) {
          ASSERT_EQ(products[i * columns + j], wanted_products[i * columns + j])
              << set->name << " " << columns;
        }
      }
    }
  }
}

TEST(JointKernels, UpdateAndReflectRowsAsThePortableOnesDo) {
  std::mt19937 random(5);
  for (const size_t columns : {16, 48, 64, 144}) {
    for (const size_t rows : {1, 4, 11}) {
      const size_t stride = columns + 16;
      const std::vector<float> matrix = Normal(rows * stride, 1, &random);
      const std::vector<float> v = Normal(columns + rows, 1, &random);
      const std::vector<float> w = Normal(columns + rows, 1, &random);
      const std::vector<float> u = Normal(rows, 1, &random);
      const RowsShape shape = {
          .rows = rows, .columns = columns, .stride = stride};
      const auto by = [&](const JointKernels& kernels) {
        std::vector<float> result = matrix;
        std::vector<float> product(columns, 0.5f);
        kernels.update_symmetric({.v = v.data(),
                                  .w = w.data(),
                                  .v_of_row = &v[columns],
                                  .w_of_row = &w[columns],
                                  .u_of_row = u.data()},
                                 shape, result.data(), product.data());
        kernels.reflect_rows(u.data(), 0.3f, shape, result.data());
        result.insert(result.end(), product.begin(), product.end());
        return result;
      };
      const std::vector<float> wanted = by(PortableJoint());
      for (const KernelSet* set : Available()) {
        EXPECT_EQ(by(*set->joint), wanted) << set->name << " " << columns;
      }
    }
  }
}

}  // namespace
}  // namespace kvcompress::kernels
