// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The payload of ecsq: its size, its bytes, and what becomes of damaged ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "codecs/ecsq/ecsq.h"
#include "codecs/ecsq_round_trip.h"
#include "digest/digest.h"
#include "kvcompress/error.h"

namespace kvcompress::ecsq_testing {
namespace {

TEST(Ecsq, SizeIsBoundedByTheFallback) {
  const auto size = [](std::vector<uint64_t> shape) {
    return *EcsqCodec().MaxEncodedSize(Spec(std::move(shape)),
                                       *EcsqCodec().Parse("high"));
  };
  EXPECT_EQ(size({0}), 0);
  EXPECT_EQ(size({}), 1 + 3);
  EXPECT_EQ(size({64}), 1 + 66);
  EXPECT_EQ(size({1, 3, 96, 64}), 1 + 18432 + 576);
}

TEST(Ecsq, ChunksDoNotMatter) {
  const TensorSpec spec = Spec({1, 2, 1100, 16});
  const Encoded encoded = RoundTrip(spec, "high", Cache(spec));
  ASSERT_TRUE(IsCoded(encoded));
  for (const size_t chunk : {1, 7, 1000}) {
    EXPECT_TRUE(*Decode(spec, encoded.payload, chunk) == encoded.decoded_bytes);
  }
  const std::string bytes = Bytes(spec.dtype, encoded.source);
  std::string payload;
  auto encoder = *EcsqCodec().NewEncoder(spec, *EcsqCodec().Parse("high"), {});
  for (size_t i = 0; i < bytes.size(); i += 999) {
    ASSERT_TRUE(
        encoder
            ->Append(absl::string_view(bytes).substr(i, 999), &payload, nullptr)
            .ok());
  }
  ASSERT_TRUE(encoder->Finish(&payload, nullptr).ok());
  EXPECT_TRUE(payload == encoded.payload);
}

std::string HexOf(absl::string_view bytes) {
  Digest digest;
  digest.Update(bytes);
  return digest.Hex();
}

// Compilers, machines and libraries all give these bytes.
TEST(Ecsq, BytesAreTheSameEverywhere) {
  const TensorSpec keys = Spec({1, 3, 150, 64});
  const Encoded key =
      RoundTrip(keys, "contract", RotatedKeys(keys, 10000, false));
  EXPECT_EQ(HexOf(key.payload), "c4f5ec552858426e79aa92238ddccc4c");
  EXPECT_EQ(HexOf(key.decoded_bytes), "1782ca5a5f005614606a1d10f02f128a");
  const TensorSpec values =
      Spec({1, 3, 150, 64}, DType::kF16, TensorRole::kValue);
  const Encoded value = RoundTrip(values, "max", Cache(values));
  EXPECT_EQ(HexOf(value.payload), "a6d02e9d7cdd07fb09cde8216866a207");
  EXPECT_EQ(HexOf(value.decoded_bytes), "7209cfe028a53a9348ec5b6ec025bd91");
}

TEST(Ecsq, EveryCutIsFound) {
  const TensorSpec spec = Spec({1, 2, 40, 24});
  const std::string payload = RoundTrip(spec, "high", Cache(spec)).payload;
  for (size_t size = 0; size < payload.size(); ++size) {
    const auto decoded =
        Decode(spec, absl::string_view(payload).substr(0, size));
    ASSERT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << size;
  }
  const auto longer = Decode(spec, payload + '\0');
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(GetErrorDetail(longer.status())->reason, "PAYLOAD_DAMAGED");
  EXPECT_EQ(GetErrorDetail(longer.status())->tensor, "t");
}

TEST(Ecsq, ErrorsSayWhatIsWrongAndWhere) {
  const TensorSpec spec = Spec({1, 2, 1100, 16});
  const std::string good = RoundTrip(spec, "high", Cache(spec)).payload;
  const size_t block = good[1] & 2 ? 20 : 12;
  const auto message = [&](size_t at, int value) {
    std::string bad = good;
    bad[at] = static_cast<char>(value);
    return std::string(Decode(spec, bad).status().message());
  };
  EXPECT_THAT(message(0, 9), ::testing::HasSubstr("has no mode 9"));
  EXPECT_THAT(message(3, 5),
              ::testing::HasSubstr("the shift of sinks at offset 3 of the "
                                   "tensor header is not below 5"));
  EXPECT_THAT(message(block + 20, 28),
              ::testing::HasSubstr(
                  "block 0 of 4, at offset " + std::to_string(block) +
                  " of the payload: the table of classes at offset 20 of "
                  "the block header is not below 28"));
  EXPECT_THAT(message(block + 6, 1),
              ::testing::HasSubstr("the words at offset 88, 1"));
  EXPECT_THAT(message(block + 8, good[block + 8] + 1),
              ::testing::HasSubstr("block 0 of 4"));
  EXPECT_THAT(std::string(Decode(spec, good.substr(0, 100)).status().message()),
              ::testing::HasSubstr("35200 of 35200 elements are missing"));
}

// What a digest would have caught, had nobody fixed it up.
TEST(Ecsq, MutationsNeitherCrashNorRunAway) {
  for (const auto& [role, preset] : {std::pair{TensorRole::kKey, "contract"},
                                     std::pair{TensorRole::kValue, "max"},
                                     std::pair{TensorRole::kNone, "0.05,8"}}) {
    const TensorSpec spec = Spec({1, 2, 40, 24}, DType::kF32, role);
    auto values = Cache(spec);
    values[1000] = 2000;
    const std::string good = RoundTrip(spec, preset, values).payload;
    Random random(7);
    size_t accepted = 0;
    constexpr size_t kMutations = 4000;
    for (size_t i = 0; i < kMutations; ++i) {
      std::string bad = good;
      for (uint32_t n = random.Bits() % 3 + 1; n > 0; --n) {
        // The headers, as often as the rest.
        const size_t range = random.Bits() % 2 ? bad.size() : 60;
        bad[random.Bits() % std::min(range, bad.size())] =
            static_cast<char>(random.Bits());
      }
      if (random.Bits() % 8 == 0) bad.resize(random.Bits() % bad.size());
      const auto decoded = Decode(spec, bad);
      if (decoded.ok()) {
        ++accepted;
        ASSERT_EQ(decoded->size(), values.size() * 4);
        for (const float value : Values(spec.dtype, *decoded)) {
          ASSERT_TRUE(std::isfinite(value));
        }
      } else {
        ASSERT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
      }
    }
    EXPECT_LT(accepted, kMutations / 2);
  }
}

// A shape that no payload of this size can fill costs no memory.
TEST(Ecsq, HugeShapesCostNothing) {
  const TensorSpec spec = Spec({1 << 10, 1 << 10, 1 << 20, 64});
  const std::string payload =
      RoundTrip(Spec({1, 1, 512, 64}), "high", Cache(Spec({1, 1, 512, 64})))
          .payload;
  EXPECT_EQ(Decode(spec, payload).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kvcompress::ecsq_testing
