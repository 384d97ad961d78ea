// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tiles against plain sums in 64 bits, modulo 2^32. Those of AMX run where the
// processor has them, and the system grants permission.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amx.h"
#include "kernels/tiles.h"
#include "kvcompress/kernels.h"
#include "transform/basis.h"

namespace kvcompress::kernels {
namespace {

// Before any test asks which sets there are.
[[maybe_unused]] const bool allowed = AllowTiles();

std::vector<std::pair<std::string, const TileKernels*>> Sets() {
  std::vector<std::pair<std::string, const TileKernels*>> sets = {
      {"portable", &PortableTiles()}};
  if (Amx() != nullptr) sets.emplace_back("amx", Amx());
  return sets;
}

using Bytes = std::vector<int8_t, coding::LineAllocator<int8_t>>;

int16_t RandomInteger(std::mt19937* random) {
  constexpr int16_t kExtremes[] = {-32768, 32767, -1, 0, 255, 256, -256};
  if ((*random)() % 8 == 0) return kExtremes[(*random)() % 7];
  return static_cast<int16_t>((*random)());
}

// A matrix [inner, columns] as tiles [columns / 16, inner_tiles, 2].
Bytes RightTiles(const std::vector<int16_t>& matrix, size_t inner,
                 size_t columns, size_t inner_tiles) {
  const size_t column_tiles = (columns + kTileRows - 1) / kTileRows;
  Bytes tiles(column_tiles * inner_tiles * 2 * kTileBytes);
  for (size_t k = 0; k < inner; ++k) {
    for (size_t c = 0; c < columns; ++c) {
      int8_t* const tile =
          &tiles[(c / kTileRows * inner_tiles + k / kTileInner) * 2 *
                 kTileBytes] +
          k % kTileInner / 4 * kTileInner + c % kTileRows * 4 + k % 4;
      tile[0] = static_cast<int8_t>(matrix[k * columns + c] >> 8);
      tile[kTileBytes] = static_cast<int8_t>(matrix[k * columns + c] & 0xff);
    }
  }
  return tiles;
}

float ValueOf(int64_t sum) {
  return static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(sum)));
}

// Levels of tokens, and the tiles they are in.
struct Quanta {
  Quanta(size_t tokens, size_t inner, bool wide, std::mt19937* random)
      : inner_tiles((inner + kTileInner - 1) / kTileInner),
        levels(tokens * inner),
        low((tokens + kTileRows - 1) / kTileRows * inner_tiles * kTileBytes),
        high(low.size()),
        low_masks(low.size() / kTileBytes / inner_tiles * kMaskWords),
        high_masks(low_masks.size()) {
    for (size_t i = 0; i < levels.size(); ++i) {
      const size_t t = i / inner;
      const size_t k = i % inner;
      // Some tiles are all zeros.
      if ((t / kTileRows + k / kTileInner) % 3 == 2) continue;
      const auto byte = static_cast<int8_t>((*random)());
      levels[i] = wide && (*random)() % 4 == 0 ? byte * 200 : byte;
      const auto small = static_cast<int8_t>(levels[i] & 0xff);
      Put(t, k, small, &low, &low_masks);
      Put(t, k, static_cast<int8_t>((levels[i] - small) >> 8), &high,
          &high_masks);
    }
  }

  void Put(size_t token, size_t k, int8_t byte, Bytes* tiles,
           std::vector<uint64_t>* masks) const {
    const size_t row_tile = token / kTileRows;
    const size_t tile = k / kTileInner;
    (*tiles)[(row_tile * inner_tiles + tile) * kTileBytes +
             token % kTileRows * kTileInner + k % kTileInner] = byte;
    if (byte == 0) return;
    (*masks)[row_tile * kMaskWords + tile / 64] |= uint64_t{1} << (tile % 64);
  }

  static LeftTiles Left(const Bytes& tiles, size_t inner_tiles,
                        const std::vector<uint64_t>& masks) {
    return {
        .tiles = tiles.data(),
        .inner_tiles = inner_tiles,
        .masks = reinterpret_cast<const uint64_t(*)[kMaskWords]>(masks.data())};
  }

  size_t inner_tiles;
  std::vector<int32_t> levels;
  Bytes low;
  Bytes high;
  std::vector<uint64_t> low_masks;
  std::vector<uint64_t> high_masks;
};

TEST(TileKernels, RestoreAsPlainSumsDo) {
  std::mt19937 random(1);
  struct Shape {
    size_t tokens, first, count, inner, columns;
  };
  for (const Shape& shape :
       {Shape{1, 0, 1, 1, 1}, Shape{16, 0, 16, 64, 16},
        Shape{40, 3, 30, 40, 24}, Shape{90, 17, 73, 130, 64},
        Shape{33, 32, 1, 1024, 128}, Shape{64, 15, 34, 8192, 16}}) {
    for (const bool wide : {false, true}) {
      const Quanta quanta(shape.tokens, shape.inner, wide, &random);
      std::vector<int16_t> matrix(shape.inner * shape.columns);
      for (int16_t& each : matrix) each = RandomInteger(&random);
      const Bytes right =
          RightTiles(matrix, shape.inner, shape.columns, quanta.inner_tiles);
      const size_t padded = (shape.columns + 15) / 16 * 16;
      std::vector<float> units(shape.count);
      std::vector<float> scales(padded);
      std::vector<float> means(padded);
      for (auto* some : {&units, &scales, &means}) {
        for (float& each : *some) each = static_cast<float>(random()) * 1e-9f;
      }
      const size_t stride = shape.columns + 3;
      std::vector<float> wanted(shape.count * stride, -1);
      for (size_t t = 0; t < shape.count; ++t) {
        for (size_t c = 0; c < shape.columns; ++c) {
          int64_t sum = 0;
          for (size_t k = 0; k < shape.inner; ++k) {
            sum += int64_t{quanta.levels[(shape.first + t) * shape.inner + k]} *
                   matrix[k * shape.columns + c];
          }
          const float scale = units[t] * scales[c];
          wanted[t * stride + c] = ValueOf(sum) * scale + means[c];
        }
      }
      for (const auto& [name, kernels] : Sets()) {
        std::vector<float> values(wanted.size(), -1);
        kernels->restore(
            {.low =
                 Quanta::Left(quanta.low, quanta.inner_tiles, quanta.low_masks),
             .high = wide ? Quanta::Left(quanta.high, quanta.inner_tiles,
                                         quanta.high_masks)
                          : LeftTiles(),
             .first = shape.first,
             .count = shape.count,
             .right = right.data(),
             .right_tiles = quanta.inner_tiles,
             .columns = shape.columns,
             .units = units.data(),
             .scales = scales.data(),
             .means = means.data(),
             .values = values.data(),
             .stride = stride});
        EXPECT_EQ(values, wanted) << name << " " << shape.inner << " " << wide;
      }
    }
  }
}

TEST(TileKernels, TakeSymbolsAsTheyAre) {
  std::mt19937 random(2);
  constexpr size_t kInnerTiles = 3;
  for (const size_t tokens : {1, 15, 16, 17, 90}) {
    for (const size_t run : {0, 1, 4, 5}) {
      std::vector<int8_t> symbols(tokens * kTileSymbols);
      for (size_t i = 0; i < symbols.size(); ++i) {
        // The second row tile has none, nor have some lanes.
        const bool none = i / kTileSymbols / kTileRows == 1 || i % 5 == 0;
        symbols[i] = none ? 0 : static_cast<int8_t>(random());
      }
      const size_t row_tiles = (tokens + kTileRows - 1) / kTileRows;
      Bytes wanted(row_tiles * kInnerTiles * kTileBytes);
      std::vector<uint64_t> wanted_masks(row_tiles * kMaskWords);
      std::vector<uint32_t> wanted_sums(tokens, 7);
      std::vector<uint8_t> wanted_any(kTileSymbols);
      const size_t tile = run * kTileSymbols / kTileInner;
      for (size_t i = 0; i < symbols.size(); ++i) {
        const size_t t = i / kTileSymbols;
        const size_t at = run * kTileSymbols % kTileInner + i % kTileSymbols;
        wanted[(t / kTileRows * kInnerTiles + tile) * kTileBytes +
               t % kTileRows * kTileInner + at] = symbols[i];
        wanted_sums[t] += static_cast<uint32_t>(std::abs(int{symbols[i]}));
        wanted_any[i % kTileSymbols] |= static_cast<uint8_t>(symbols[i]);
        if (symbols[i] == 0) continue;
        wanted_masks[t / kTileRows * kMaskWords] |= uint64_t{1} << tile;
      }
      for (const auto& [name, kernels] : Sets()) {
        Bytes tiles(wanted.size());
        std::vector<uint64_t> masks(wanted_masks.size());
        std::vector<uint32_t> sums(tokens, 7);
        std::vector<uint8_t> any(kTileSymbols, 99);
        kernels->take_symbols(
            symbols.data(), tokens, run * kTileSymbols, kInnerTiles,
            tiles.data(), reinterpret_cast<uint64_t(*)[kMaskWords]>(&masks[0]),
            sums.data(), any.data());
        EXPECT_EQ(tiles, wanted) << name << " " << tokens << " " << run;
        EXPECT_EQ(masks, wanted_masks) << name << " " << tokens << " " << run;
        EXPECT_EQ(sums, wanted_sums) << name << " " << tokens << " " << run;
        EXPECT_EQ(any, wanted_any) << name << " " << tokens << " " << run;
      }
    }
  }
}

TEST(TileKernels, ProjectAsPlainSumsDo) {
  std::mt19937 random(3);
  struct Shape {
    size_t tokens, inner, components;
  };
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{16, 64, 16}, Shape{40, 130, 300},
        Shape{256, 700, 40}, Shape{17, 1300, 17}}) {
    const InnerBlocks blocks = InnerBlocks::Of(shape.inner);
    std::vector<int16_t> integers(shape.tokens * blocks.inner());
    std::vector<int16_t> matrix(blocks.inner() * shape.components);
    for (size_t t = 0; t < shape.tokens; ++t) {
      for (size_t k = 0; k < shape.inner; ++k) {
        integers[t * blocks.inner() + k] = RandomInteger(&random);
      }
    }
    for (size_t i = 0; i < shape.inner * shape.components; ++i) {
      matrix[i] = RandomInteger(&random);
    }
    // Block after block.
    const size_t of_block = blocks.tiles * kTileInner;
    Bytes right;
    for (size_t b = 0; b < blocks.count; ++b) {
      const auto begin = matrix.begin() + b * of_block * shape.components;
      const Bytes tiles =
          RightTiles({begin, begin + of_block * shape.components}, of_block,
                     shape.components, blocks.tiles);
      right.insert(right.end(), tiles.begin(), tiles.end());
    }
    std::vector<float> units(shape.tokens);
    for (float& each : units) each = static_cast<float>(random()) * 1e-9f;
    units[0] = 0;
    std::vector<float> wanted(shape.tokens * shape.components);
    for (size_t t = 0; t < shape.tokens; ++t) {
      for (size_t c = 0; c < shape.components; ++c) {
        int64_t sum = 0;
        for (size_t k = 0; k < shape.inner; ++k) {
          sum += int64_t{integers[t * blocks.inner() + k]} *
                 matrix[k * shape.components + c];
        }
        wanted[t * shape.components + c] = ValueOf(sum) * units[t] + 0.0f;
      }
    }
    for (const auto& [name, kernels] : Sets()) {
      Bytes left(kTileTokens * blocks.inner() * 2);
      for (size_t t = 0; t < shape.tokens; ++t) {
        kernels->split(&integers[t * blocks.inner()], blocks, t, left.data());
      }
      std::vector<int32_t> sums(kTileTokens * kColumnTilesAtOnce * kTileRows);
      std::vector<float> values(wanted.size(), -1);
      constexpr size_t kColumns = kColumnTilesAtOnce * kTileRows;
      for (size_t c = 0; c < shape.components; c += kColumns) {
        kernels->project(
            {.blocks = blocks,
             .left = left.data(),
             .right = right.data(),
             .column_tiles = (shape.components + kTileRows - 1) / kTileRows,
             .first = c / kTileRows,
             .columns = std::min(kColumns, shape.components - c),
             .tokens = shape.tokens,
             .units = units.data(),
             .sums = sums.data(),
             .values = &values[c],
             .stride = shape.components});
      }
      EXPECT_EQ(std::memcmp(values.data(), wanted.data(),
                            wanted.size() * sizeof(float)),
                0)
          << name << " " << shape.inner << " " << shape.components;
    }
  }
}

TEST(TileKernels, AreThereOnceTheyAreAllowed) {
  EXPECT_EQ(Amx() != nullptr, allowed);
  const std::string before(ActiveKernels());
  EXPECT_EQ(SelectKernels("amx").ok(), allowed);
  EXPECT_TRUE(SelectKernels("portable-tiles").ok());
  ASSERT_TRUE(SelectKernels(before).ok());
  if (!allowed) {
    GTEST_SKIP() << "no AMX here: its kernels are compared with nothing";
  }
}

}  // namespace
}  // namespace kvcompress::kernels
