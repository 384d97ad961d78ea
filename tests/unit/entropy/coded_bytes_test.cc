// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/coded_bytes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace kvcompress::coding {
namespace {

std::string Coded(absl::string_view symbols) {
  std::string coded = "before";
  EncodeBytes(symbols, CountBytes(symbols), &coded);
  EXPECT_EQ(coded.substr(0, 6), "before");
  return coded.substr(6);
}

bool Decodes(absl::string_view coded, size_t count, std::string* symbols) {
  symbols->assign(count, '?');
  return DecodeBytes(coded, count, reinterpret_cast<uint8_t*>(symbols->data()))
      .ok();
}

// Bytes of a geometric distribution: the larger `p`, the fewer values.
std::string Geometric(size_t count, double p, uint32_t seed) {
  std::mt19937 random(seed);
  std::geometric_distribution<int> distribution(p);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(distribution(random));
  return bytes;
}

std::string States(std::initializer_list<uint32_t> first) {
  std::vector<uint32_t> states(first);
  states.resize(kByteLanes, 65536);
  std::string bytes(kByteLanes * 4, '\0');
  std::memcpy(bytes.data(), states.data(), bytes.size());
  return bytes;
}

TEST(Rans, TwoSymbolsByHand) {
  // f = 2048 each, F[a] = 0, F[b] = 2048: a takes 65536 to (32 << 12), b to
  // (32 << 12) + 2048.
  EXPECT_EQ(Coded("ab"), std::string("\x00\x60\x88\x00\x88\x00\x00\x9c", 8) +
                             States({131072, 133120}));
}

TEST(Rans, AnEncoderGivesAWordWhenTheStateIsFull) {
  // Lane 0 takes 65536 symbols of 1 bit less 1: five of them fill it.
  std::string symbols(80 * 16, 'a');
  for (size_t i = 0; i < symbols.size(); i += 2) symbols[i] = 'b';
  const std::string coded = Coded(symbols);
  EXPECT_EQ(coded.size(), 8 + 64 + 2 * 80);
}

TEST(Rans, OneValueTakesNoWords) {
  EXPECT_EQ(Coded("zzzzz"),
            std::string("\x00\x79\x90\x00\x00\x84", 6) + States({}));
}

TEST(Rans, DecodesWhatWasEncoded) {
  std::string decoded;
  for (size_t count : {1, 2, 15, 16, 17, 31, 32, 33, 1000, 65536}) {
    for (double p : {0.9, 0.5, 0.2, 0.02}) {
      const std::string symbols = Geometric(count, p, 7);
      ASSERT_TRUE(Decodes(Coded(symbols), count, &decoded)) << count;
      EXPECT_EQ(decoded, symbols);
    }
  }
}

TEST(Rans, ComesCloseToTheEntropy) {
  // 2 bits a symbol: p = 1/2, and 80 bytes for the model and the states.
  const std::string symbols = Geometric(65536, 0.5, 3);
  EXPECT_LT(Coded(symbols).size(), 65536 * 2 / 8 * 1.005 + 100);
}

TEST(Rans, RefusesEveryCutAndWhatFollows) {
  std::string decoded;
  const std::string symbols = Geometric(300, 0.3, 5);
  const std::string coded = Coded(symbols);
  for (size_t size = 0; size < coded.size(); ++size) {
    EXPECT_FALSE(Decodes(coded.substr(0, size), 300, &decoded)) << size;
  }
  for (size_t more : {1, 2, 3, 100}) {
    EXPECT_FALSE(Decodes(coded + std::string(more, '\0'), 300, &decoded));
  }
  EXPECT_FALSE(Decodes(coded, 299, &decoded));
  EXPECT_FALSE(Decodes(coded, 301, &decoded));
  EXPECT_FALSE(Decodes(coded, 65536, &decoded));
}

TEST(Rans, FindsFlippedBits) {
  std::string decoded;
  const std::string symbols = Geometric(300, 0.3, 5);
  const std::string coded = Coded(symbols);
  for (size_t bit = 0; bit < coded.size() * 8; ++bit) {
    std::string flipped = coded;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(Decodes(flipped, 300, &decoded) && decoded == symbols) << bit;
  }
}

TEST(Rans, RefusesStatesThatNoEncoderWrites) {
  std::string decoded;
  const std::string model("\x00\x79\x90\x00\x00\x84", 6);
  EXPECT_TRUE(Decodes(model + States({}), 5, &decoded));
  EXPECT_FALSE(Decodes(model + States({0}), 5, &decoded));
  EXPECT_FALSE(Decodes(model + States({65536, 65535}), 5, &decoded));
  EXPECT_FALSE(Decodes(model + States({65537}), 5, &decoded));
}

TEST(Rans, WritesNoMoreThanItsSymbolsFromNoise) {
  const std::string guard(64, '#');
  std::mt19937 random(11);
  const std::string coded = Coded(Geometric(2000, 0.1, 5));
  for (int round = 0; round < 2000; ++round) {
    std::string noise = coded.substr(0, random() % (coded.size() + 1));
    for (int i = 0; i < 4 && !noise.empty(); ++i) {
      noise[random() % noise.size()] = static_cast<char>(random());
    }
    const size_t count = random() % 2100;
    std::string decoded = std::string(count, '?') + guard;
    DecodeBytes(noise, count, reinterpret_cast<uint8_t*>(decoded.data()))
        .IgnoreError();
    EXPECT_EQ(decoded.substr(count), guard);
  }
}

}  // namespace
}  // namespace kvcompress::coding
