// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Every set of kernels that this machine runs against the portable one: the
// same payload, decoded bytes, faults and sums, to the last bit.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/vnni.h"
#include "kvcompress/kernels.h"
#include "support/safetensors_file.h"

namespace kvcompress::kernels {
namespace {

constexpr size_t kGroups[] = {32, 64, 128};

struct Codes {
  const GroupedKernels KernelSet::*kernels;
  int bits;
};
constexpr Codes kCodes[] = {{&KernelSet::int4, 4}, {&KernelSet::int8, 8}};

// Kinds of values that take different ways through a kernel.
using Source = float (*)(std::mt19937* engine, size_t i);
float Normal(std::mt19937* engine, size_t) {
  return std::normal_distribution<float>(0, 0.3f)(*engine);
}
// Quotients of exactly a half and next to it, scale 1 in every group.
float Ties(std::mt19937* engine, size_t i) {
  if (i % 32 == 0) return i % 64 == 0 ? 7 : -127;
  const float tie = static_cast<float>((*engine)() % 14) - 6.5f;
  const float towards = (*engine)() % 2 == 0 ? 0 : 8 * tie;
  return (*engine)() % 2 == 0 ? tie : std::nextafter(tie, towards);
}
// Scales that are subnormal, so that codes are clamped, or round to zero.
float Tiny(std::mt19937* engine, size_t i) {
  const float unit = std::ldexp(1.0f, -34 + static_cast<int>(i / 32 % 24));
  return unit * std::uniform_real_distribution<float>(-1, 1)(*engine);
}
// Groups of zeros, of both signs, next to others.
float Sparse(std::mt19937* engine, size_t i) {
  if (i / 32 % 3 != 0) return (*engine)() % 2 == 0 ? 0.0f : -0.0f;
  return (*engine)() % 4 == 0 ? Normal(engine, i) : -0.0f;
}
// From what binary32 can hardly hold to what the scale can hardly.
float Wide(std::mt19937* engine, size_t) {
  const float value =
      std::ldexp(std::uniform_real_distribution<float>(-2, 2)(*engine),
                 static_cast<int>((*engine)() % 160) - 145);
  return std::abs(value) > 60000 ? 60000 : value;
}
// Integers, as in a cache that was quantized before.
float Whole(std::mt19937* engine, size_t) {
  return static_cast<float>((*engine)() % 31) - 15;
}
constexpr Source kSources[] = {Normal, Ties, Tiny, Sparse, Wide, Whole};

std::string MakeSource(Source source, DType dtype, size_t count,
                       uint32_t seed) {
  std::mt19937 engine(seed);
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    AppendElement(dtype, source(&engine, i), &bytes);
  }
  return bytes;
}

struct Result {
  EncodeFault fault;
  std::string payload;
  std::string decoded;
  DistortionSums sums;
};

// At an odd address, and next to bytes that must stay as they are.
Result Encode(const GroupedKernels& kernels, int bits, DType dtype,
              absl::string_view source, BlockLayout layout, bool decode) {
  constexpr char kGuard = '\x5a';
  Result result;
  const std::string moved = absl::StrCat("x", source);
  const size_t size = BlockSize(bits, layout.count, layout.group);
  result.payload.assign(size + 2, kGuard);
  result.decoded.assign(source.size() + 2, kGuard);
  result.fault = kernels.encode[static_cast<size_t>(dtype)](
      reinterpret_cast<const uint8_t*>(moved.data()) + 1, layout,
      reinterpret_cast<uint8_t*>(result.payload.data()) + 1,
      decode ? reinterpret_cast<uint8_t*>(result.decoded.data()) + 1 : nullptr,
      &result.sums);
  for (const std::string* out : {&result.payload, &result.decoded}) {
    EXPECT_EQ(out->front(), kGuard);
    EXPECT_EQ(out->back(), kGuard);
  }
  return result;
}

void ExpectSame(const KernelSet& set, const Codes& codes, DType dtype,
                absl::string_view source, BlockLayout layout) {
  SCOPED_TRACE(absl::StrCat(set.name, " int", codes.bits, " ", DTypeName(dtype),
                            " count ", layout.count, " group ", layout.group,
                            " rotation ", layout.rotation));
  const GroupedKernels& portable = Portable().*codes.kernels;
  const GroupedKernels& other = set.*codes.kernels;
  const Result want = Encode(portable, codes.bits, dtype, source, layout, true);
  const Result got = Encode(other, codes.bits, dtype, source, layout, true);
  ASSERT_EQ(got.fault.kind, want.fault.kind);
  ASSERT_EQ(got.fault.element, want.fault.element);
  if (want.fault.kind != EncodeFault::Kind::kNone) return;
  ASSERT_EQ(got.payload, want.payload);
  ASSERT_EQ(got.decoded, want.decoded);
  ASSERT_EQ(std::memcmp(&got.sums, &want.sums, sizeof(want.sums)), 0)
      << got.sums.sum_e2 << " " << want.sums.sum_e2 << " " << got.sums.sum_x2
      << " " << want.sums.sum_x2 << " " << got.sums.sum_y2 << " "
      << want.sums.sum_y2 << " " << got.sums.sum_abs_e << " "
      << want.sums.sum_abs_e << " " << got.sums.max_abs_e << " "
      << want.sums.max_abs_e << " " << got.sums.max_abs_x << " "
      << want.sums.max_abs_x;
  const Result blind = Encode(other, codes.bits, dtype, source, layout, false);
  ASSERT_EQ(blind.payload, want.payload);
  ASSERT_EQ(std::memcmp(&blind.sums, &want.sums, sizeof(want.sums)), 0);

  std::string decoded(source.size(), '\0');
  ASSERT_TRUE(other.decode[static_cast<size_t>(dtype)](
      reinterpret_cast<const uint8_t*>(got.payload.data()) + 1, layout,
      reinterpret_cast<uint8_t*>(decoded.data())));
  ASSERT_EQ(decoded, want.decoded.substr(1, source.size()));
}

template <typename Check>
void ForEachKernel(Check check) {
  for (const KernelSet* set : Available()) {
    if (set == &Portable()) continue;
    for (const Codes& codes : kCodes) {
      for (const DType dtype : NumberDTypes()) check(*set, codes, dtype);
    }
  }
}

TEST(KernelSets, GiveWhatThePortableOneGives) {
  ForEachKernel([](const KernelSet& set, const Codes& codes, DType dtype) {
    for (const size_t group : kGroups) {
      for (const size_t count : {1, 31, 32, 64, 96, 100, 128, 160, 320, 384,
                                 640, 1000, 4032, 4095, 4096}) {
        uint32_t seed = 1;
        for (const Source source : kSources) {
          ExpectSame(set, codes, dtype,
                     MakeSource(source, dtype, count, ++seed),
                     {.count = count, .group = group});
        }
      }
    }
  });
}

TEST(KernelSets, RotateAsThePortableOneDoes) {
  ForEachKernel([](const KernelSet& set, const Codes& codes, DType dtype) {
    for (const size_t group : kGroups) {
      for (size_t width = 2; width <= kMaxRotation; width *= 2) {
        uint32_t seed = 1;
        for (const Source source : kSources) {
          for (const size_t count : {width, 3 * width, kBlockElements}) {
            ExpectSame(set, codes, dtype,
                       MakeSource(source, dtype, count, ++seed),
                       {.count = count, .group = group, .rotation = width});
          }
        }
      }
    }
  });
}

TEST(KernelSets, NameTheSameElementAtFault) {
  ForEachKernel([](const KernelSet& set, const Codes& codes, DType dtype) {
    constexpr size_t kCount = 384;
    for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f, -3e38f}) {
      if (dtype == DType::kF16 && std::isfinite(bad)) continue;
      for (size_t i = 0; i < kCount; ++i) {
        std::string source = MakeSource(Normal, dtype, kCount, 3);
        std::string value;
        AppendElement(dtype, bad, &value);
        source.replace(i * value.size(), value.size(), value);
        for (const size_t rotation : {1, 64}) {
          ExpectSame(set, codes, dtype, source,
                     {.count = kCount, .group = 64, .rotation = rotation});
        }
      }
    }
  });
}

// Every one of 8 and 16 bits, and as many of more with the same upper bits.
TEST(KernelSets, TakeEveryBitPattern) {
  ForEachKernel([](const KernelSet& set, const Codes& codes, DType dtype) {
    for (uint32_t first = 0; first < 0x10000; first += 128) {
      std::string source;
      for (uint32_t i = 0; i < 128; ++i) {
        const uint64_t low = first + i;
        const uint64_t bits =
            dtype == DType::kF32   ? low << 16 | (first * 2654435761u >> 16)
            : dtype == DType::kF64 ? low << 48 | first * 2654435761u
                                   : low;
        source.append(reinterpret_cast<const char*>(&bits), DTypeSize(dtype));
      }
      for (const size_t group : {32, 128}) {
        ExpectSame(set, codes, dtype, source, {.count = 128, .group = group});
      }
    }
  });
}

TEST(KernelSets, DecodeEveryScaleAndRefuseTheSame) {
  ForEachKernel([](const KernelSet& set, const Codes& codes, DType dtype) {
    const size_t index = static_cast<size_t>(dtype);
    const BlockLayout layout = {.count = 32, .group = 32};
    std::string payload(BlockSize(codes.bits, 32, 32), '\0');
    for (size_t i = 2; i < payload.size(); ++i) {
      payload[i] = static_cast<char>(i * 37 + 128);
    }
    const uint8_t* const bytes =
        reinterpret_cast<const uint8_t*>(payload.data());
    for (uint32_t scale = 0; scale < 0x10000; ++scale) {
      std::memcpy(payload.data(), &scale, 2);
      uint8_t want[256], got[256];
      const bool accepted =
          (Portable().*codes.kernels).decode[index](bytes, layout, want);
      ASSERT_EQ((set.*codes.kernels).decode[index](bytes, layout, got),
                accepted);
      if (!accepted) continue;
      ASSERT_EQ(std::memcmp(got, want, 32 * DTypeSize(dtype)), 0)
          << set.name << " " << scale;
    }
  });
}

TEST(KernelSets, MeasureRowsAsThePortableOneDoes) {
  for (const KernelSet* set : Available()) {
    for (const DType dtype : NumberDTypes()) {
      for (const size_t columns : {1, 7, 8, 64, 77, 128, 264}) {
        constexpr size_t kRows = 7;
        const size_t count = kRows * columns;
        std::string source = MakeSource(Wide, dtype, count, 5);
        const std::string decoded = MakeSource(Wide, dtype, count, 6);
        for (const float bad : {0.0f, NAN, INFINITY, -INFINITY}) {
          const bool with_channels = bad != INFINITY;
          std::string value;
          AppendElement(dtype, bad, &value);
          source.replace(count / 2 * value.size(), value.size(), value);
          std::vector<double> sums[2];
          RowSums rows[2][kRows];
          for (const bool portable : {false, true}) {
            const KernelSet& one = portable ? Portable() : *set;
            sums[portable].assign(columns, 0.25);
            const std::vector<float> origins(columns, 0.3f);
            one.measure[static_cast<size_t>(dtype)](
                reinterpret_cast<const uint8_t*>(source.data()),
                reinterpret_cast<const uint8_t*>(decoded.data()), kRows,
                columns,
                with_channels
                    ? ChannelSums{origins.data(), sums[portable].data()}
                    : ChannelSums(),
                rows[portable]);
          }
          EXPECT_EQ(sums[0], sums[1]) << set->name;
          for (size_t row = 0; row < kRows; ++row) {
            EXPECT_EQ(rows[0][row].x2, rows[1][row].x2) << set->name;
            EXPECT_EQ(rows[0][row].e2, rows[1][row].e2) << set->name;
            EXPECT_EQ(rows[0][row].d2, rows[1][row].d2) << set->name;
          }
        }
      }
    }
  }
}

TEST(KernelSets, MultiplyAsThePortableOneDoes) {
  std::mt19937 random(11);
  std::map<std::string, MultiplyInt16> kernels;
  for (const KernelSet* set : Available()) kernels[set->name] = set->multiply;
  if (Vnni() != nullptr) kernels["vnni"] = Vnni();
  for (const size_t columns : {1, 8, 16, 40, 61, 192, 256}) {
    for (const size_t rows : {1, 5, 17, 40, 64}) {
      for (const size_t inner : {2, 6, 64, 192, 256, 320}) {
        // One byte, two, and every bit pattern: sums wrap in the same way.
        for (const unsigned magnitude : {128u, 2000u, 32768u}) {
          std::vector<int16_t> left(rows * inner);
          std::vector<int16_t> right(inner * columns);
          for (int16_t& each : left) {
            each = static_cast<int16_t>(
                static_cast<int>(random() % (2 * magnitude)) -
                static_cast<int>(magnitude));
          }
          for (int16_t& each : right) each = static_cast<int16_t>(random());
          left[0] = static_cast<int16_t>(-magnitude);
          left.back() = static_cast<int16_t>(magnitude - 1);
          right[0] = -32768;
          const ProductShape shape = {rows, inner, columns};
          std::vector<int32_t> wanted(rows * columns);
          Portable().multiply(left.data(), right.data(), shape, wanted.data());
          for (const auto& [name, each] : kernels) {
            std::vector<int32_t> product(rows * columns, 7);
            each(left.data(), right.data(), shape, product.data());
            EXPECT_EQ(product, wanted)
                << name << " " << rows << " " << inner << " " << columns;
          }
        }
      }
    }
  }
}

TEST(KernelSets, ReflectAsThePortableOneDoes) {
  std::mt19937 random(12);
  for (const size_t columns : {1, 7, 16, 80, 192, 256}) {
    for (const size_t rows : {2, 10, 256}) {
      std::vector<int16_t> unit(rows);
      std::vector<int16_t> matrix(rows * columns);
      for (int16_t& each : unit) {
        each = static_cast<int16_t>(static_cast<int>(random() % 65535) - 32767);
      }
      for (int16_t& each : matrix) each = static_cast<int16_t>(random());
      std::vector<int16_t> wanted = matrix;
      Portable().reflect(unit.data(), rows, columns, wanted.data());
      for (const KernelSet* set : Available()) {
        std::vector<int16_t> reflected = matrix;
        set->reflect(unit.data(), rows, columns, reflected.data());
        EXPECT_EQ(reflected, wanted) << set->name << " " << columns;
      }
    }
  }
}

TEST(KernelSets, CanBeSelectedByName) {
  const std::string before(ActiveKernels());
  for (const KernelSet* set : Available()) {
    ASSERT_TRUE(SelectKernels(set->name).ok());
    EXPECT_EQ(ActiveKernels(), set->name);
    EXPECT_EQ(&Active(), set);
  }
  const absl::Status status = SelectKernels("mmx");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("portable"), absl::string_view::npos);
  EXPECT_EQ(ActiveKernels(), Available().back()->name);
  ASSERT_TRUE(SelectKernels(before).ok());
}

// The sums of the portable set against a plain loop in binary64.
TEST(KernelSets, SumWithinABillionth) {
  for (const Source source : kSources) {
    const std::string bytes =
        MakeSource(source, DType::kF32, kBlockElements, 11);
    const Result result = Encode(Portable().int4, 4, DType::kF32, bytes,
                                 {.count = kBlockElements}, true);
    double x2 = 0, y2 = 0, xy = 0, e2 = 0, abs_e = 0;
    for (size_t i = 0; i < kBlockElements; ++i) {
      float x, y;
      std::memcpy(&x, bytes.data() + 4 * i, 4);
      std::memcpy(&y, result.decoded.data() + 1 + 4 * i, 4);
      x2 += double{x} * x;
      y2 += double{y} * y;
      xy += double{x} * y;
      e2 += (double{y} - x) * (double{y} - x);
      abs_e += std::abs(double{y} - x);
    }
    EXPECT_NEAR(result.sums.sum_x2, x2, 1e-12 * x2);
    EXPECT_NEAR(result.sums.sum_y2, y2, 1e-12 * y2);
    EXPECT_NEAR(result.sums.sum_xy, xy, 1e-12 * (x2 + y2));
    EXPECT_NEAR(result.sums.sum_e2, e2, 1e-12 * e2);
    EXPECT_NEAR(result.sums.sum_abs_e, abs_e, 1e-12 * abs_e);
  }
}

}  // namespace
}  // namespace kvcompress::kernels
