// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdlib>

#include "kernels/tiles.h"

namespace kvcompress::kernels {
namespace {

// sums[row, column] += left * right of one tile each, modulo 2^32.
template <typename Left, typename Right>
void AddProduct(const int8_t* left, const int8_t* right, uint32_t factor,
                uint32_t* sums) {
  for (size_t row = 0; row < kTileRows; ++row) {
    for (size_t k = 0; k < kTileInner; ++k) {
      const auto quantum = static_cast<Left>(left[row * kTileInner + k]);
      if (quantum == 0) continue;
      const int8_t* const pairs = right + k / 4 * kTileInner + k % 4;
      for (size_t column = 0; column < kTileRows; ++column) {
        const int product = quantum * static_cast<Right>(pairs[4 * column]);
        sums[row * kTileRows + column] +=
            factor * static_cast<uint32_t>(product);
      }
    }
  }
}

// One row tile by one column tile of a matrix.
void AddLeft(const LeftTiles& left, size_t row_tile, const int8_t* right,
             uint32_t factor, uint32_t* sums) {
  for (size_t k = 0; k < left.inner_tiles; ++k) {
    if ((left.masks[row_tile][k / 64] >> (k % 64) & 1) == 0) continue;
    const int8_t* const tile =
        left.tiles + (row_tile * left.inner_tiles + k) * kTileBytes;
    const int8_t* const high = right + k * 2 * kTileBytes;
    AddProduct<int8_t, int8_t>(tile, high, factor << 8, sums);
    AddProduct<int8_t, uint8_t>(tile, high + kTileBytes, factor, sums);
  }
}

float Value(uint32_t sum) {
  return static_cast<float>(static_cast<int32_t>(sum));
}

void Restore(const RestoreTilesJob& job) {
  const size_t end = job.first + job.count;
  for (size_t tile = job.first / kTileRows; tile * kTileRows < end; ++tile) {
    for (size_t column = 0; column < job.columns; column += kTileRows) {
      const int8_t* const right =
          job.right + column / kTileRows * job.right_tiles * 2 * kTileBytes;
      uint32_t sums[kTileSums] = {};
      AddLeft(job.low, tile, right, 1, sums);
      AddLeft(job.high, tile, right, 256, sums);
      const size_t from = std::max(job.first, tile * kTileRows);
      const size_t behind = std::min(end, (tile + 1) * kTileRows);
      const size_t columns = std::min(kTileRows, job.columns - column);
      for (size_t token = from; token < behind; ++token) {
        const size_t at = token - job.first;
        float* const values = job.values + at * job.stride + column;
        for (size_t c = 0; c < columns; ++c) {
          const float scale = job.units[at] * job.scales[column + c];
          values[c] = Value(sums[token % kTileRows * kTileRows + c]) * scale +
                      job.means[column + c];
        }
      }
    }
  }
}

void TakeSymbols(const int8_t* symbols, size_t tokens, size_t inner,
                 size_t inner_tiles, int8_t* tiles,
                 uint64_t (*masks)[kMaskWords], uint32_t* sums, uint8_t* any) {
  const size_t tile = inner / kTileInner;
  std::fill_n(any, kTileSymbols, uint8_t{0});
  for (size_t t = 0; t < tokens; ++t, symbols += kTileSymbols) {
    int8_t* const to = tiles +
                       (t / kTileRows * inner_tiles + tile) * kTileBytes +
                       t % kTileRows * kTileInner + inner % kTileInner;
    for (size_t i = 0; i < kTileSymbols; ++i) {
      to[i] = symbols[i];
      any[i] |= static_cast<uint8_t>(symbols[i]);
      sums[t] += static_cast<uint32_t>(std::abs(symbols[i]));
      if (symbols[i] != 0) {
        masks[t / kTileRows][tile / 64] |= uint64_t{1} << (tile % 64);
      }
    }
  }
}

void Split(const int16_t* integers, InnerBlocks blocks, size_t token,
           int8_t* tiles) {
  constexpr size_t kRowTiles = kTileTokens / kTileRows;
  for (size_t i = 0; i < blocks.inner(); ++i) {
    const size_t tile = i / kTileInner;
    int8_t* const to =
        tiles +
        (tile / blocks.tiles * kRowTiles + token / kTileRows) * blocks.bytes() +
        tile % blocks.tiles * 2 * kTileBytes + token % kTileRows * kTileInner +
        i % kTileInner;
    to[0] = static_cast<int8_t>(integers[i] >> 8);
    to[kTileBytes] = static_cast<int8_t>(integers[i] & 0xff);
  }
}

void Project(const ProjectTilesJob& job) {
  constexpr size_t kRowTiles = kTileTokens / kTileRows;
  const size_t bytes = job.blocks.bytes();
  for (size_t row = 0; row * kTileRows < job.tokens; ++row) {
    for (size_t column = 0; column < job.columns; column += kTileRows) {
      uint32_t sums[kTileSums] = {};
      for (size_t b = 0; b < job.blocks.count; ++b) {
        const int8_t* left = job.left + (b * kRowTiles + row) * bytes;
        const int8_t* right =
            job.right +
            (b * job.column_tiles + job.first + column / kTileRows) * bytes;
        for (size_t k = 0; k < job.blocks.tiles;
             ++k, left += 2 * kTileBytes, right += 2 * kTileBytes) {
          AddProduct<int8_t, int8_t>(left, right, 1U << 16, sums);
          AddProduct<int8_t, uint8_t>(left, right + kTileBytes, 1U << 8, sums);
          AddProduct<uint8_t, int8_t>(left + kTileBytes, right, 1U << 8, sums);
          AddProduct<uint8_t, uint8_t>(left + kTileBytes, right + kTileBytes, 1,
                                       sums);
        }
      }
      const size_t tokens = std::min(kTileRows, job.tokens - row * kTileRows);
      const size_t columns = std::min(kTileRows, job.columns - column);
      for (size_t t = 0; t < tokens; ++t) {
        const size_t token = row * kTileRows + t;
        for (size_t c = 0; c < columns; ++c) {
          // Adding 0 makes -0 the 0 that other kernels produce.
          job.values[token * job.stride + column + c] =
              Value(sums[t * kTileRows + c]) * job.units[token] + 0.0F;
        }
      }
    }
  }
}

}  // namespace

const TileKernels& PortableTiles() {
  static constexpr TileKernels kKernels = {.restore = Restore,
                                           .take_symbols = TakeSymbols,
                                           .split = Split,
                                           .project = Project};
  return kKernels;
}

}  // namespace kvcompress::kernels
