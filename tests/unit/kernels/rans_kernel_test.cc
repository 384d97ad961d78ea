// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rANS kernels: what is coded comes back, and every set has the words and
// states of the portable one.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "entropy/tables.h"
#include "kernels/kernels.h"

namespace kvcompress::kernels {
namespace {

struct Rows {
  std::vector<uint8_t> tables;  // of the lanes
  std::vector<int8_t> symbols;  // of rows of kRansLanes
  std::vector<uint16_t> coded;  // the same, as the encoder takes them
};

// Rows of symbols near those that their tables are made for; lanes from `lanes`
// on are empty.
Rows MakeRows(size_t rows, size_t lanes, uint32_t seed) {
  const coding::Tables& tables = coding::GetTables();
  std::mt19937 engine(seed);
  Rows result;
  for (size_t lane = 0; lane < kRansLanes; ++lane) {
    result.tables.push_back(static_cast<uint8_t>(
        lane < lanes ? engine() % coding::kAllTables : coding::kNoTable));
  }
  for (size_t i = 0; i < rows * kRansLanes; ++i) {
    const uint8_t table = result.tables[i % kRansLanes];
    int symbol = 0;
    if (table != coding::kNoTable) {
      const int largest = tables.largest[table];
      symbol = static_cast<int>(engine() % (2 * largest + 1)) - largest;
      if (engine() % 64 == 0) symbol = coding::kEscape;
    }
    result.symbols.push_back(static_cast<int8_t>(symbol));
    result.coded.push_back(coding::CodedSymbol(table, symbol));
  }
  return result;
}

struct Stream {
  std::vector<uint32_t> states;
  std::vector<uint16_t> words;
};

Stream Encode(const RansKernels& kernels, const Rows& rows) {
  Stream stream;
  stream.states.assign(kRansLanes, kRansLowest);
  std::vector<uint16_t> room(kRansLanes + rows.coded.size());
  const uint16_t* const first =
      kernels.encode(coding::GetTables().intervals, rows.coded.data(),
                     rows.coded.size() / kRansLanes, stream.states.data(),
                     room.data() + room.size());
  stream.words.assign(first,
                      const_cast<const uint16_t*>(room.data()) + room.size());
  return stream;
}

TEST(RansKernels, EverySetWritesTheSameAndReadsItBack) {
  for (const size_t rows : {0, 1, 2, 7, 300}) {
    for (const size_t lanes : {1, 5, 31, 32}) {
      const Rows input = MakeRows(rows, lanes, static_cast<uint32_t>(rows));
      const Stream expected = Encode(PortableRans(), input);
      for (size_t lane = lanes; lane < kRansLanes; ++lane) {
        EXPECT_EQ(expected.states[lane], kRansLowest);
      }
      for (const KernelSet* set : Available()) {
        const Stream stream = Encode(set->rans, input);
        EXPECT_TRUE(stream.words == expected.words) << set->name;
        EXPECT_TRUE(stream.states == expected.states) << set->name;

        // With space behind the words, so that all rows are read.
        std::vector<uint16_t> words = stream.words;
        words.resize(words.size() + kRansLanes);
        std::vector<uint32_t> states = stream.states;
        std::vector<int8_t> symbols(input.symbols.size());
        const uint8_t* next = reinterpret_cast<uint8_t*>(words.data());
        const uint8_t* const end = next + 2 * words.size();
        const std::vector<const uint8_t*> tables(rows, input.tables.data());
        EXPECT_EQ(
            set->rans.decode(coding::GetTables().slots[0], tables.data(), rows,
                             states.data(), &next, end, symbols.data()),
            rows)
            << set->name;
        EXPECT_TRUE(symbols == input.symbols) << set->name;
        EXPECT_EQ(end - next, 2 * static_cast<ptrdiff_t>(kRansLanes));
        EXPECT_TRUE(std::all_of(states.begin(), states.end(), [](uint32_t x) {
          return x == kRansLowest;
        })) << set->name;
      }
    }
  }
}

TEST(RansKernels, EverySetStopsAtTheSameRowOfAnyStream) {
  std::mt19937 engine(7);
  for (int trial = 0; trial < 200; ++trial) {
    const Rows input = MakeRows(50, 32, static_cast<uint32_t>(trial));
    std::vector<uint8_t> bytes(engine() % 900);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(engine());
    std::vector<uint32_t> first(kRansLanes);
    for (uint32_t& state : first) {
      state = kRansLowest + engine() % ((1u << 31) - kRansLowest);
    }
    const auto decode = [&](const RansKernels& kernels, size_t* rows,
                            size_t* left, std::vector<int8_t>* symbols) {
      std::vector<uint32_t> states = first;
      symbols->assign(50 * kRansLanes, 0);
      const uint8_t* next = bytes.data();
      const std::vector<const uint8_t*> tables(50, input.tables.data());
      *rows = kernels.decode(coding::GetTables().slots[0], tables.data(), 50,
                             states.data(), &next, bytes.data() + bytes.size(),
                             symbols->data());
      *left = bytes.size() - static_cast<size_t>(next - bytes.data());
      return states;
    };
    size_t rows, left, other_rows, other_left;
    std::vector<int8_t> symbols, other_symbols;
    const auto states = decode(PortableRans(), &rows, &left, &symbols);
    for (const KernelSet* set : Available()) {
      EXPECT_TRUE(states ==
                  decode(set->rans, &other_rows, &other_left, &other_symbols));
      EXPECT_EQ(rows, other_rows) << set->name;
      EXPECT_EQ(left, other_left) << set->name;
      EXPECT_TRUE(symbols == other_symbols) << set->name;
    }
  }
}

// A state is at most 2^20 frequencies when its quotient is guessed.
TEST(RansKernels, TheGuessedQuotientIsExactOrOneLess) {
  std::mt19937 engine(3);
  for (uint32_t frequency = 1; frequency <= kRansSlots; ++frequency) {
    const float inverse = RansInverse(frequency);
    for (int trial = 0; trial < 200; ++trial) {
      const uint64_t bound = uint64_t{frequency} << 20;
      const uint64_t quotient = trial % 2 == 0
                                    ? (1u << 20) - 1 - trial / 2
                                    : 16 + engine() % ((1u << 20) - 16);
      for (const uint64_t state :
           {quotient * frequency, (quotient + 1) * frequency - 1}) {
        if (state >= bound) continue;
        const double guess =
            static_cast<double>(static_cast<float>(state) * inverse);
        EXPECT_LT(guess, static_cast<double>(quotient) + 1);
        EXPECT_GT(guess, static_cast<double>(quotient) - 0.5);
      }
    }
  }
}

}  // namespace
}  // namespace kvcompress::kernels
