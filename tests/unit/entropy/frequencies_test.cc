// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/frequencies.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace kvcompress::entropy {
namespace {

std::string Written(const Frequencies& frequencies) {
  std::string out;
  AppendFrequencies(frequencies, &out);
  return out;
}

bool Reads(absl::string_view bytes) {
  Frequencies frequencies;
  return ConsumeFrequencies(&bytes, &frequencies);
}

TEST(Frequencies, AreWrittenAsTheFormatSays) {
  Frequencies frequencies = {};
  frequencies[0] = 1;
  frequencies[1] = 127;
  frequencies[2] = 128;
  frequencies[7] = 3840;
  const std::string expected("\x01\x7f\x80\x80\x00\x03\x8f\x00\x00\xf7", 10);
  EXPECT_EQ(Written(frequencies), expected);
  Frequencies only_last = {};
  only_last[255] = 4096;
  EXPECT_EQ(Written(only_last), std::string("\x00\xfe\x90\x00", 4));
}

TEST(Frequencies, AreReadAsWrittenAndNoFurther) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    ByteCounts counts = {};
    for (int i = 0; i <= round; ++i) counts[random() % 256] += random() % 9000;
    counts[random() % 256] += 1;
    const Frequencies frequencies = NormalizeCounts(counts);
    const std::string bytes = Written(frequencies) + "rest";
    absl::string_view rest = bytes;
    Frequencies read;
    ASSERT_TRUE(ConsumeFrequencies(&rest, &read));
    EXPECT_EQ(read, frequencies);
    EXPECT_EQ(rest, "rest");
  }
}

TEST(Frequencies, KeepWhatOccursAndSumTo4096) {
  const auto normalized = [](const ByteCounts& counts) {
    const Frequencies frequencies = NormalizeCounts(counts);
    EXPECT_EQ(std::accumulate(frequencies.begin(), frequencies.end(), 0), 4096);
    for (size_t v = 0; v < 256; ++v) {
      EXPECT_EQ(frequencies[v] > 0, counts[v] > 0) << v;
    }
    return frequencies;
  };
  ByteCounts one = {};
  one[9] = 1;
  EXPECT_EQ(normalized(one)[9], 4096);
  ByteCounts thirds = {};
  thirds[3] = thirds[5] = thirds[8] = 7;
  EXPECT_EQ(normalized(thirds)[3], 1366);
  EXPECT_EQ(normalized(thirds)[5], 1365);
  ByteCounts rare;
  rare.fill(1);
  rare[200] = 65281;
  EXPECT_EQ(normalized(rare)[200], 4096 - 255);
  ByteCounts large = {};
  large[0] = large[1] = 0x7fffffff;
  EXPECT_EQ(normalized(large)[1], 2048);
}

TEST(Frequencies, RefuseAnyOtherForm) {
  const std::string zeros("\x00\xff", 2);
  EXPECT_TRUE(Reads(std::string("\x90\x00\x00\xfe", 4)));
  for (const std::string& bytes :
       {std::string(), zeros, std::string("\x90\x00\x00", 3),
        std::string("\x90", 1), std::string("\x90\x00\x00\xfd", 4),
        // Runs that go too far, or come one after the other.
        std::string("\x90\x00\x00\xff", 4),
        std::string("\x90\x00\x00\x03\x00\xfa", 6),
        // A wrong sum, and two bytes where one would do.
        std::string("\x8f\xff\x00\xfe", 4), std::string("\x90\x01\x00\xfe", 4),
        std::string("\x8f\xff\x80\x01\x00\xfd", 6),
        std::string("\xff\xff\xff\xff\x00\xfd", 6)}) {
    EXPECT_FALSE(Reads(bytes)) << ::testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace kvcompress::entropy
