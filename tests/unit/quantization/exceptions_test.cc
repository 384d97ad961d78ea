// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/exceptions.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kvcompress::coding {
namespace {

constexpr size_t kHeads = 3;
constexpr size_t kCount = 1000;   // elements of a head
constexpr size_t kStride = 1300;  // to the next

uint8_t* At(std::vector<float>* values, size_t index) {
  return reinterpret_cast<uint8_t*>(&(*values)[index]);
}

absl::Span<const uint8_t> AsBytes(const std::string& bytes) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                             bytes.size());
}

TEST(Exceptions, OfHeadsThatLieApart) {
  std::vector<float> source(kHeads * kStride, 1);
  std::vector<float> decoded(kHeads * kStride, 1.25f);
  std::vector<float> wanted = decoded;
  for (const size_t index : {0ul, 1ul, 999ul, 1300ul, 2299ul, 2600ul, 3599ul}) {
    source[index] = wanted[index] = 2;
  }
  source[1100] = 5;  // between heads
  const std::vector<float> before = decoded;
  ExceptionWriter writer(DType::kF32);
  for (size_t h = 0; h < kHeads; ++h) {
    writer.AddHead(At(&source, h * kStride), kCount, 0.5f,
                   At(&decoded, h * kStride));
  }
  EXPECT_EQ(decoded, wanted);
  // Two bytes for the gap of 997 elements, and for that of 998; one for others.
  EXPECT_EQ(writer.bytes().size(), 7 * 4 + 4 + 3 * 2);
  std::vector<float> restored = before;
  ASSERT_TRUE(ApplyExceptions(AsBytes(writer.bytes()), DType::kF32, kHeads,
                              kCount, kStride, At(&restored, 0))
                  .ok());
  EXPECT_EQ(restored, wanted);
  // One element fewer, or a byte.
  EXPECT_FALSE(ApplyExceptions(AsBytes(writer.bytes()), DType::kF32, kHeads,
                               kCount - 1, kStride, At(&restored, 0))
                   .ok());
  EXPECT_FALSE(
      ApplyExceptions(
          AsBytes(writer.bytes()).subspan(0, writer.bytes().size() - 1),
          DType::kF32, kHeads, kCount, kStride, At(&restored, 0))
          .ok());
}

TEST(Exceptions, CountHeadsWithoutAny) {
  std::vector<float> source(kCount, 1);
  std::vector<float> decoded(kCount, 1);
  source[7] = 3;
  ExceptionWriter writer(DType::kF32);
  writer.SkipHead(kCount);
  writer.AddHead(At(&source, 0), kCount, 0.5f, At(&decoded, 0));
  const std::string gap = {static_cast<char>(0xef), 0x07};  // 1007
  EXPECT_EQ(writer.bytes().substr(0, 2), gap);
}

TEST(Exceptions, RefuseWhatNoWriterGives) {
  std::vector<float> values(8);
  const auto accepts = [&](const std::string& bytes) {
    return ApplyExceptions(AsBytes(bytes), DType::kF32, 1, 8, 8, At(&values, 0))
        .ok();
  };
  const std::string one("\0\0\x80\x3f", 4);
  const std::string infinity("\0\0\x80\x7f", 4);
  EXPECT_TRUE(accepts(std::string("\x07", 1) + one));
  EXPECT_EQ(values[7], 1);
  EXPECT_FALSE(accepts(std::string("\x08", 1) + one));
  EXPECT_FALSE(accepts(std::string("\x87\0", 2) + one));
  EXPECT_FALSE(accepts(std::string("\x80\x80\x80\x01", 4) + one));
  EXPECT_FALSE(accepts(std::string("\x01", 1) + infinity));
}

}  // namespace
}  // namespace kvcompress::coding
