// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Products of integers by tiles of bytes, for klt-profile. Exact modulo 2^32:
// the same sums as those of MultiplyInt16.
//
// A tile is 16 rows of 64 bytes, kept as 1 KiB that lies together.
// - Left tiles hold 16 tokens and 64 places of the inner dimension, a byte
// each.
// - Right tiles hold 16 columns: byte 4 * c + i of row r is of the inner place
//   4 * r + i and of column c. 16-bit integers b are two tiles, first the high
//   bytes, signed, then the low ones, unsigned: b = 256 * high + low.
//
// A kernel holds no state and allocates nothing. Thread safe.

#ifndef KVCOMPRESS_KERNELS_TILES_H_
#define KVCOMPRESS_KERNELS_TILES_H_

#include <cstddef>
#include <cstdint>

namespace kvcompress::kernels {

inline constexpr size_t kTileRows = 16;   // tokens, or columns
inline constexpr size_t kTileInner = 64;  // bytes of a row
inline constexpr size_t kTileBytes = kTileRows * kTileInner;
inline constexpr size_t kTileSums = kTileRows * kTileRows;
// Most tiles of the inner dimension of quanta: 8192 components.
inline constexpr size_t kMaxInnerTiles = 128;
inline constexpr size_t kMaskWords = kMaxInnerTiles / 64;
// Tokens that pass one by one by the right matrix of an encoder, which comes
// from far: so many that this does not matter.
inline constexpr size_t kTileTokens = 256;
// Column tiles that they pass by between two looks at a checkpoint.
inline constexpr size_t kColumnTilesAtOnce = 16;
// Symbols that are taken at once: a run of lanes, half a row of a tile.
inline constexpr size_t kTileSymbols = kTileInner / 2;

// Left tiles [row tiles, inner tiles], of which those count whose bits in
// masks[row tile] are set. All others are zeros, and are not read.
struct LeftTiles {
  const int8_t* tiles = nullptr;
  size_t inner_tiles = 0;  // 0: there are none
  const uint64_t (*masks)[kMaskWords] = nullptr;
};

// Quanta q of tokens are int8_t where all of a tile are; elsewhere
// q = 256 * high + low with both signed, and `high` has tiles of its own.
struct RestoreTilesJob {
  LeftTiles low;
  LeftTiles high;
  size_t first = 0;               // token of `low`
  size_t count = 0;               // tokens
  const int8_t* right = nullptr;  // [columns / 16, right_tiles, 2]
  size_t right_tiles = 0;         // of the inner dimension, in each column tile
  size_t columns = 0;             // of the result; right tiles are whole
  const float* units = nullptr;   // of each token from `first` on
  const float* scales = nullptr;  // of each column, whole tiles
  const float* means = nullptr;
  float* values = nullptr;  // [count, stride]
  size_t stride = 0;
};

// How the encoder's inner dimension is cut: blocks of some tiles, which stay in
// the nearest cache while tokens pass by.
struct InnerBlocks {
  size_t count = 0;
  size_t tiles = 0;  // of each
  size_t inner() const { return count * tiles * kTileInner; }
  size_t bytes() const {
    return tiles * 2 * kTileBytes;
  }  // of each, 16 columns
  static InnerBlocks Of(size_t inner) {
    constexpr size_t kMost = 10;
    const size_t all = (inner + kTileInner - 1) / kTileInner;
    const size_t count = (all + kMost - 1) / kMost;
    return {count, (all + count - 1) / count};
  }
};

// Tokens by some columns of a matrix of 16-bit integers.
struct ProjectTilesJob {
  InnerBlocks blocks;
  const int8_t* left = nullptr;   // [block, kTileTokens / 16, tile, 2]
  const int8_t* right = nullptr;  // [block, column_tiles, tile, 2]
  size_t column_tiles = 0;
  size_t first = 0;    // column tile
  size_t columns = 0;  // from there on, at most kColumnTilesAtOnce tiles
  size_t tokens = 0;   // at most kTileTokens
  const float* units = nullptr;  // of each token
  int32_t* sums = nullptr;  // kTileTokens * kColumnTilesAtOnce * 16, for use
  float* values = nullptr;  // [tokens, stride]
  size_t stride = 0;
};

struct TileKernels {
  // sum * (unit * scale) + mean, as RestoreStrip.
  void (*restore)(const RestoreTilesJob& job);

  // Copies symbols [tokens, kTileSymbols], whose place in the inner dimension
  // is a multiple of kTileSymbols, to left tiles; adds their magnitudes to
  // sums[token], sets the bits of masks, and `any[kTileSymbols]` to the or of
  // all. Tokens are in whole row tiles; symbols behind `tokens` are not read.
  void (*take_symbols)(const int8_t* symbols, size_t tokens, size_t inner,
                       size_t inner_tiles, int8_t* tiles,
                       uint64_t (*masks)[kMaskWords], uint32_t* sums,
                       uint8_t* any);

  // A token of 16-bit integers, of blocks.inner(), to row `token` of the left
  // tiles of a ProjectTilesJob.
  void (*split)(const int16_t* integers, InnerBlocks blocks, size_t token,
                int8_t* tiles);
  // sum * unit of each column.
  void (*project)(const ProjectTilesJob& job);
};

// `base` with these tiles, as a set of another name that stays for ever.
struct KernelSet;
const KernelSet* WithTiles(const KernelSet& base, const TileKernels* tiles,
                           const char* name);

// The reference, in standard C++. Slower than products without tiles: it is
// there to be compared with.
const TileKernels& PortableTiles();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_TILES_H_
