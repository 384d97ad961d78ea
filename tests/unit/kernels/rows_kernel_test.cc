// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The arithmetic of rows: small answers known beforehand, then every set
// against the portable one, to the last bit.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/elements.h"
#include "kernels/kernels.h"

namespace kvcompress::kernels {
namespace {

constexpr size_t kWidths[] = {1, 3, 8, 15, 16, 32, 33, 64, 80, 128};

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

std::vector<float> Normal(size_t count, uint32_t seed, float width = 2) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, width);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

// All sets that have kernels of their own.
absl::Span<const KernelSet* const> Others() {
  return Available().first(Available().size() - 2);
}

TEST(RowKernels, TypesGiveWhatTheyHold) {
  const std::vector<float> values = {0,        -0.0f,  1,       -2.5f,
                                     70000,    -3e38f, 1e-7f,   1.00390625f,
                                     65519.9f, 6e-8f,  3.3e38f, -1e-42f};
  for (const KernelSet* set : Available()) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const auto& rows = set->rows;
      const int type = static_cast<int>(dtype);
      std::vector<uint8_t> bytes(values.size() * DTypeSize(dtype));
      std::vector<float> back(values.size());
      rows.store[type](values.data(), values.size(), bytes.data());
      const uint32_t largest =
          rows.load[type](bytes.data(), values.size(), back.data());
      EXPECT_EQ(back[0], 0);
      EXPECT_TRUE(std::signbit(back[1]));
      EXPECT_EQ(back[3], -2.5f);
      EXPECT_EQ(back[4], dtype == DType::kF16    ? 65504
                         : dtype == DType::kBF16 ? 70144
                                                 : 70000);
      EXPECT_EQ(back[5] < -65503, true);
      float most = 0;
      for (const float value : back) most = std::max(most, std::abs(value));
      EXPECT_EQ(std::bit_cast<float>(largest), most) << set->name;
    }
  }
}

TEST(RowKernels, LoadTellsWhatIsNotFinite) {
  for (const KernelSet* set : Available()) {
    for (const size_t at : {0, 7, 8, 20}) {
      for (const float bad : {std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> values(21, 1.0f);
        values[at] = bad;
        std::vector<float> loaded(21);
        EXPECT_GE(set->rows.load[0](reinterpret_cast<uint8_t*>(values.data()),
                                    21, loaded.data()),
                  0x7f800000u);
      }
    }
  }
}

// Processors make a NaN quiet when they widen it; so does what stands in.
TEST(RowKernels, EverySetWidensNansTheSame) {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0x7c00; bits < 0x10000;
       bits += bits == 0x7fff ? 0x7c01 : 1) {
    halves.push_back(static_cast<uint16_t>(bits));
  }
  const auto* const source = reinterpret_cast<const uint8_t*>(halves.data());
  std::vector<uint32_t> want(halves.size());
  const uint32_t largest = Portable().rows.load[1](
      source, halves.size(), reinterpret_cast<float*>(want.data()));
  for (const KernelSet* set : Available()) {
    std::vector<uint32_t> got(halves.size());
    EXPECT_EQ(set->rows.load[1](source, halves.size(),
                                reinterpret_cast<float*>(got.data())),
              largest);
    EXPECT_EQ(got, want) << set->name;
  }
}

TEST(RowKernels, EverySetComparesTheSame) {
  for (const size_t count : {1, 7, 8, 9, 100, 4096, 4099}) {
    for (const DType dtype : NumberDTypes()) {
      const int type = static_cast<int>(dtype);
      std::vector<uint8_t> x(count * DTypeSize(dtype));
      std::vector<uint8_t> y(x.size());
      PortableRows().store[type](Normal(count, 1).data(), count, x.data());
      PortableRows().store[type](Normal(count, 2).data(), count, y.data());
      LaneSums expected;
      PortableRows().compare[type](x.data(), y.data(), 0, count, &expected);
      EXPECT_EQ(expected.Total(count).count, count);
      for (const KernelSet* set : Others()) {
        // At once, and in parts: no matter where they are cut.
        for (const size_t part : {count, size_t{64}, size_t{5}}) {
          LaneSums sums;
          for (size_t first = 0; first < count; first += part) {
            set->rows.compare[type](x.data(), y.data(), first,
                                    std::min(count, first + part), &sums);
          }
          EXPECT_EQ(std::memcmp(&sums, &expected, sizeof(sums)), 0)
              << set->name << " " << part;
        }
      }
    }
  }
}

TEST(RowKernels, EverySetStoresAndLoadsTheSame) {
  std::mt19937 engine(5);
  std::vector<float> values;
  while (values.size() < 5000) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(engine()));
    if (!std::isnan(value)) values.push_back(value);
  }
  for (int type = 0; type < static_cast<int>(kDTypes); ++type) {
    const size_t size = DTypeSize(static_cast<DType>(type)) * values.size();
    std::vector<uint8_t> expected(size);
    PortableRows().store[type](values.data(), values.size(), expected.data());
    std::vector<float> expected_values(values.size());
    const uint32_t largest = PortableRows().load[type](
        expected.data(), values.size(), expected_values.data());
    EXPECT_EQ(PortableRows().largest[type](expected.data(), values.size()),
              largest);
    for (const KernelSet* set : Others()) {
      std::vector<uint8_t> bytes(size);
      set->rows.store[type](values.data(), values.size(), bytes.data());
      EXPECT_TRUE(bytes == expected) << set->name << " " << type;
      std::vector<float> back(values.size());
      EXPECT_EQ(set->rows.load[type](bytes.data(), values.size(), back.data()),
                largest);
      EXPECT_EQ(set->rows.largest[type](bytes.data(), values.size()), largest);
      EXPECT_TRUE(SameBits(back, expected_values)) << set->name << " " << type;
    }
  }
}

TEST(RowKernels, EverySetTurnsTheSame) {
  std::mt19937_64 engine(9);
  for (const size_t pairs : {1, 4, 7, 8, 32, 40, 64}) {
    std::vector<uint64_t> increments(pairs);
    for (uint64_t& increment : increments) increment = engine();
    increments[0] = uint64_t{1} << 62;  // exact quarters, whose sine is 0
    constexpr size_t kTokens = 37;
    std::vector<float> table(2 * pairs * kTokens);
    PortableRows().fill_rotation(increments.data(), pairs, 1000, kTokens,
                                 table.data());
    for (const KernelSet* set : Others()) {
      std::vector<float> other(table.size());
      set->rows.fill_rotation(increments.data(), pairs, 1000, kTokens,
                              other.data());
      EXPECT_TRUE(SameBits(table, other)) << set->name << " " << pairs;
      const auto values = Normal(table.size(), 4);
      for (const bool interleaved : {false, true}) {
        for (const bool back : {false, true}) {
          const RotationShape shape = {.tokens = kTokens,
                                       .pairs = pairs,
                                       .interleaved = interleaved,
                                       .back = back};
          auto expected = values, turned = values;
          PortableRows().rotate(table.data(), shape, expected.data());
          set->rows.rotate(table.data(), shape, turned.data());
          EXPECT_TRUE(SameBits(turned, expected)) << set->name << " " << pairs;
        }
        const RotationShape shape = {
            .tokens = kTokens, .pairs = pairs, .interleaved = interleaved};
        std::vector<float> expected(2 * pairs), sums(2 * pairs);
        PortableRows().sum_turned_back(table.data(), shape, values.data(),
                                       expected.data());
        set->rows.sum_turned_back(table.data(), shape, values.data(),
                                  sums.data());
        EXPECT_TRUE(SameBits(sums, expected)) << set->name << " " << pairs;
      }
    }
  }
}

TEST(RowKernels, TurningBackUndoesATurn) {
  const std::vector<uint64_t> increments = {uint64_t{1} << 62, 123456789u};
  std::vector<float> table(4);
  PortableRows().fill_rotation(increments.data(), 2, 1, 1, table.data());
  RotationShape shape = {.tokens = 1, .pairs = 2};
  std::vector<float> row = {1, 2, 3, 4};
  PortableRows().rotate(table.data(), shape, row.data());
  EXPECT_NEAR(row[0], -3, 1e-6);  // a quarter
  EXPECT_NEAR(row[2], 1, 1e-6);
  shape.back = true;
  PortableRows().rotate(table.data(), shape, row.data());
  EXPECT_NEAR(row[0], 1, 1e-6);
  EXPECT_NEAR(row[2], 3, 1e-6);
}

TEST(RowKernels, EverySetSumsTheSame) {
  for (const size_t width : kWidths) {
    const MatrixShape shape = {
        .rows = 50, .columns = width, .stride = width + 3};
    const auto values = Normal(50 * (width + 3), 6);
    std::vector<double> x(width, 0.5), x2(width, 0.25);
    const float largest =
        PortableRows().sum_columns(values.data(), shape, x.data(), x2.data());
    const double squares =
        PortableRows().sum_squares(values.data(), values.size());
    for (const KernelSet* set : Others()) {
      std::vector<double> y(width, 0.5), y2(width, 0.25);
      EXPECT_EQ(
          set->rows.sum_columns(values.data(), shape, y.data(), y2.data()),
          largest);
      EXPECT_TRUE(SameBits(x, y) && SameBits(x2, y2)) << set->name;
      EXPECT_EQ(set->rows.sum_squares(values.data(), values.size()), squares);
    }
  }
}

TEST(RowKernels, QuantizesToTheNearestAndGivesWayAtABorder) {
  const std::vector<float> values = {1.4f, -1.5f, 2.7f, -9e9f};
  const std::vector<float> means(4, 0);
  std::vector<float> thresholds(2 * kThresholdCount, 0);
  thresholds[kThresholdCount + 2] = 1.6f;
  const std::vector<int32_t> offsets(4, kThresholdCount);
  std::vector<int32_t> quanta(4);
  QuantizeStep step = {.inverse = 1, .means = means.data()};
  PortableRows().quantize(values.data(), 1, 4, step, quanta.data());
  EXPECT_EQ(quanta, (std::vector<int32_t>{1, -2, 3, -kMaxQuantum}));
  step.thresholds = thresholds.data();
  step.threshold_offsets = offsets.data();
  PortableRows().quantize(values.data(), 1, 4, step, quanta.data());
  EXPECT_EQ(quanta, (std::vector<int32_t>{1, -1, 3, -kMaxQuantum}));
}

TEST(RowKernels, EverySetQuantizesAndCodesTheSame) {
  for (const size_t width : kWidths) {
    constexpr size_t kRows = 20;
    const auto values = Normal(kRows * width, 8, 5);
    const auto means = Normal(width, 9);
    const auto thresholds = Normal(3 * kThresholdCount, 10, 20);
    const auto norms = Normal(kRows, 11);
    std::mt19937 engine(12);
    std::vector<int32_t> offsets(width), units(width);
    for (int32_t& at : offsets)
      at = static_cast<int32_t>(engine() % 3) * kThresholdCount;
    for (int32_t& unit : units)
      unit = static_cast<int32_t>(engine() % 2001) - 1000;
    for (const KernelSet* set : Others()) {
      for (const bool has_thresholds : {false, true}) {
        const QuantizeStep step = {
            .inverse = 1.7f,
            .means = means.data(),
            .thresholds = has_thresholds ? thresholds.data() : nullptr,
            .threshold_offsets = offsets.data()};
        std::vector<int32_t> expected(values.size()), quanta(values.size());
        PortableRows().quantize(values.data(), kRows, width, step,
                                expected.data());
        set->rows.quantize(values.data(), kRows, width, step, quanta.data());
        EXPECT_EQ(quanta, expected) << set->name << " " << width;
        for (const int shift : {0, 3}) {
          const DequantizeStep back = {
              .means = units.data(),
              .shift = shift,
              .unit = 0.04f,
              .norms = has_thresholds ? norms.data() : nullptr};
          std::vector<float> restored(values.size()), other(values.size());
          const MatrixShape shape = {
              .rows = kRows, .columns = width, .stride = width};
          PortableRows().dequantize(quanta.data(), shape, back,
                                    restored.data());
          set->rows.dequantize(quanta.data(), shape, back, other.data());
          EXPECT_TRUE(SameBits(restored, other)) << set->name << " " << width;
        }
      }
    }
  }
}

TEST(RowKernels, SymbolsAreDequantizedAsTheirQuanta) {
  constexpr size_t kRows = 9, kStride = kRansLanes + 3;
  std::mt19937 engine(13);
  std::vector<int8_t> symbols(kRows * kRansLanes);
  for (int8_t& symbol : symbols) symbol = static_cast<int8_t>(engine());
  std::vector<int32_t> quanta(kRows * kStride);
  for (size_t i = 0; i < symbols.size(); ++i) {
    quanta[i / kRansLanes * kStride + i % kRansLanes] = symbols[i];
  }
  const auto norms = Normal(kRows, 14);
  std::vector<int32_t> units(kRansLanes);
  for (int32_t& unit : units) {
    unit = static_cast<int32_t>(engine() % 2001) - 1000;
  }
  for (size_t width = 1; width <= kRansLanes; ++width) {
    const MatrixShape shape = {
        .rows = kRows, .columns = width, .stride = kStride};
    for (const float* each :
         {static_cast<const float*>(nullptr), norms.data()}) {
      const DequantizeStep step = {
          .means = units.data(), .shift = 1, .unit = 0.04f, .norms = each};
      std::vector<float> expected(quanta.size(), 7);
      PortableRows().dequantize(quanta.data(), shape, step, expected.data());
      for (const KernelSet* set : Available()) {
        std::vector<float> values(quanta.size(), 7);
        set->rows.dequantize_symbols(symbols.data(), shape, step,
                                     values.data());
        EXPECT_TRUE(SameBits(values, expected)) << set->name << " " << width;
      }
    }
  }
}

TEST(RowKernels, EverySetScalesTheSame) {
  for (const size_t width : kWidths) {
    constexpr size_t kRows = 7;
    const auto factors = Normal(kRows, 15);
    auto expected = Normal(kRows * width, 16);
    PortableRows().scale(factors.data(), kRows, width, expected.data());
    EXPECT_EQ(expected[0], Normal(kRows * width, 16)[0] * factors[0]);
    for (const KernelSet* set : Others()) {
      auto values = Normal(kRows * width, 16);
      set->rows.scale(factors.data(), kRows, width, values.data());
      EXPECT_TRUE(SameBits(values, expected)) << set->name << " " << width;
    }
  }
}

TEST(RowKernels, EverySetCodesUpToTheSameRow) {
  for (size_t width = 1; width <= kRansLanes; ++width) {
    constexpr size_t kRows = 9;
    const MatrixShape shape = {
        .rows = kRows, .columns = width, .stride = width + 5};
    const std::vector<int32_t> base(width, 1000), most(width, 20);
    for (const size_t bad : {size_t{0}, size_t{4}, kRows}) {
      std::vector<int32_t> quanta(kRows * shape.stride, -20);
      std::vector<int8_t> symbols(kRows * kRansLanes, 127);
      if (bad < kRows) {
        quanta[bad * shape.stride + width - 1] = -21;
        symbols[bad * kRansLanes + width - 1] = -128;
      }
      for (const KernelSet* set : Available()) {
        std::vector<uint16_t> codes(kRows * kRansLanes, 7);
        EXPECT_EQ(set->rows.code(quanta.data(), shape, base.data(), most.data(),
                                 codes.data()),
                  bad);
        for (size_t row = 0; row < bad; ++row) {
          EXPECT_EQ(codes[row * kRansLanes + width - 1], 980);
          if (width < kRansLanes) {
            EXPECT_EQ(codes[row * kRansLanes + width], 7);
          }
        }
        std::vector<int32_t> widened(kRows * shape.stride, 5);
        EXPECT_EQ(set->rows.widen(symbols.data(), shape, widened.data()), bad);
        for (size_t row = 0; row < bad; ++row) {
          EXPECT_EQ(widened[row * shape.stride + width - 1], 127);
          EXPECT_EQ(widened[row * shape.stride + width], 5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcompress::kernels
