// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "kernels/lanes.h"
#include "transform/basis.h"

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

TEST(JointKernels, PairAsThePortableOneDoes) {
  std::mt19937 random(4);
  for (const size_t columns : {1, 7, 32, 40, 96, 192, 256}) {
    const std::vector<float> values = Normal(2 * columns, 1, &random);
    const std::vector<float> means = Normal(columns, 1, &random);
    for (const float* second :
         {values.data() + columns, static_cast<const float*>(nullptr)}) {
      const auto by = [&](const JointKernels& kernels) {
        std::vector<int16_t> pairs(2 * columns);
        kernels.pair_rows(values.data(), second, columns, means.data(), 700,
                          pairs.data());
        return pairs;
      };
      const std::vector<int16_t> wanted = by(PortableJoint());
      for (const KernelSet* set : Available()) {
        EXPECT_EQ(by(*set->joint), wanted) << set->name << " " << columns;
      }
    }
  }
}

TEST(JointKernels, ScaleToUnitAsThePortableOneDoes) {
  std::mt19937 random(7);
  std::vector<int32_t> integers(77);
  for (int32_t& each : integers) {
    each = static_cast<int32_t>(random() % 65535) - 32767;
  }
  integers[0] = 1 << 19;
  const UnitScale scale = {
      .factor = 0x1p29, .half = 0x1p29, .inverse = 1 / 0x1.8p30};
  std::vector<int16_t> wanted(integers.size());
  PortableJoint().scale_to_unit(integers.data(), integers.size(), scale,
                                wanted.data());
  EXPECT_EQ(wanted[0], 32767);
  for (const KernelSet* set : Available()) {
    std::vector<int16_t> unit(integers.size());
    set->joint->scale_to_unit(integers.data(), integers.size(), scale,
                              unit.data());
    EXPECT_EQ(unit, wanted) << set->name;
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

TEST(JointKernels, AddFloatProductsAsThePortableOneDoes) {
  std::mt19937 random(8);
  for (const size_t columns : {16, 32, 48, 80}) {
    for (const size_t rows : {1, 4, 9}) {
      for (const size_t inner : {0, 1, 33}) {
        const size_t stride = columns + 16;
        const std::vector<float> left = Normal(rows * (inner + 3), 1, &random);
        const std::vector<float> right = Normal(inner * stride, 1, &random);
        const std::vector<float> start = Normal(rows * stride, 1, &random);
        const auto by = [&](const JointKernels& kernels) {
          std::vector<float> sums = start;
          kernels.add_float_product(
              {.left = left.data(),
               .left_stride = inner + 3,
               .right = right.data(),
               .right_stride = stride,
               .inner = inner},
              {.rows = rows, .columns = columns, .stride = stride},
              sums.data());
          return sums;
        };
        const std::vector<float> wanted = by(PortableJoint());
        for (const KernelSet* set : Available()) {
          EXPECT_EQ(by(*set->joint), wanted) << set->name << " " << columns;
        }
      }
    }
  }
}

TEST(JointKernels, FindEigenvectorsAsThePortableOnesDo) {
  std::mt19937 random(6);
  for (const size_t size : {1, 2, 31, 70}) {
    const std::vector<float> diagonal = Normal(size, 1, &random);
    std::vector<float> off_diagonal = Normal(size, 0.3f, &random);
    off_diagonal.back() = 0;
    const Tridiagonal matrix = {.diagonal = diagonal.data(),
                                .off_diagonal = off_diagonal.data(),
                                .size = size};
    const size_t stride = kEigenLanes + 3;
    const auto by = [&](const JointKernels& kernels) {
      std::vector<float> values(kEigenLanes);
      kernels.find_eigenvalues(matrix, size / 3, -6, 6, values.data());
      std::vector<float> vectors(size * stride, 1.0f);
      std::vector<FactorsOfRow> memory(size);
      for (const bool begins : {true, false}) {
        kernels.find_eigenvectors(matrix, values.data(), 1e-6f, begins,
                                  memory.data(), stride, vectors.data());
      }
      vectors.insert(vectors.end(), values.begin(), values.end());
      return vectors;
    };
    const std::vector<float> wanted = by(PortableJoint());
    for (const KernelSet* set : Available()) {
      EXPECT_EQ(by(*set->joint), wanted) << set->name << " " << size;
    }
  }
}

TEST(JointKernels, RestoreStripAsThePortableOneDoes) {
  std::mt19937 random(9);
  constexpr size_t kRows = 90;
  coding::Lines strip(kRows * kStripColumns);
  for (int16_t& value : strip) {
    value =
        static_cast<int16_t>(static_cast<int32_t>(random() % 65535) - 32767);
  }
  std::vector<float> scales(kStripColumns);
  std::vector<float> means(kStripColumns);
  for (float& scale : scales) scale = static_cast<float>(random()) * 1e-12f;
  for (float& mean : means) mean = static_cast<float>(random()) * 1e-9f;
  std::vector<uint16_t> rows;
  std::vector<int16_t> factors;
  const std::vector<size_t> counts = {0, 8, 40, 16, 80};
  for (const size_t count : counts) {
    for (size_t k = 0; k < count; ++k) {
      rows.push_back(static_cast<uint16_t>(k + random() % 10));
      factors.push_back(
          static_cast<int16_t>(static_cast<int32_t>(random() % 800) - 400));
    }
  }
  std::vector<SparseToken> tokens;
  size_t begin = 0;
  for (const size_t count : counts) {
    tokens.push_back({.rows = &rows[begin],
                      .factors = &factors[begin],
                      .count = count,
                      .unit = 0.1f * static_cast<float>(tokens.size() + 1)});
    begin += count;
  }
  constexpr size_t kStride = kStripColumns + 5;
  std::vector<int32_t> sums(counts.size() * kStride);
  for (int32_t& sum : sums) sum = static_cast<int32_t>(random());
  const auto by = [&](const JointKernels& kernels, const int32_t* more) {
    std::vector<float> values(counts.size() * kStride, 7);
    kernels.restore_strip(strip.data(), tokens.data(), tokens.size(),
                          {.scales = scales.data(),
                           .means = means.data(),
                           .more = more,
                           .more_stride = kStride},
                          kStride, values.data());
    return values;
  };
  for (const int32_t* more :
       {static_cast<const int32_t*>(nullptr), std::as_const(sums).data()}) {
    for (const KernelSet* set : Available()) {
      EXPECT_EQ(by(*set->joint, more), by(PortableJoint(), more)) << set->name;
    }
  }
}

}  // namespace
}  // namespace kvcompress::kernels
