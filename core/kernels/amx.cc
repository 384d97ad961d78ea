// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/amx.h"

#include "kernels/vnni.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace kvcompress::kernels {
namespace {

#define KVCOMPRESS_AMX \
  __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw")))

// A tile: rows of 64 bytes, here 32 integers of a left matrix, or 16 columns of
// a pair of rows of a right one.
constexpr size_t kRows = 16;
constexpr size_t kInner = 32;
constexpr size_t kColumns = 16;
constexpr size_t kMostInner = 256;
constexpr size_t kRowSize = 64;  // bytes

// What LDTILECFG takes: all eight tiles whole.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_sizes[16] = {kRowSize, kRowSize, kRowSize, kRowSize,
                            kRowSize, kRowSize, kRowSize, kRowSize};
  uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};
};
constexpr TileConfiguration kTiles;

// Rows of tiles.
using Shorts = uint16_t __attribute__((vector_size(kRowSize)));
using Ints = uint32_t __attribute__((vector_size(kRowSize)));

// The instructions multiply bytes and add up four products. Bytes of a pair of
// the right matrix are its low and high one, twice; those of the left are made
// into operands where every other byte is 0, so that they meet only the low
// ones or only the high ones: nothing needs to be moved.
using LeftTiles = Shorts[kMostInner / kInner][kRows];
struct Left {
  LeftTiles low_for_low;
  LeftTiles low_for_high;
  LeftTiles high_for_low;
  LeftTiles high_for_high;
};

struct Sums {
  Ints of[4][kRows];
};

// Splits up to kRows rows. True when each integer is one signed byte, so that
// there are no high ones.
KVCOMPRESS_AMX bool Split(const int16_t* rows, size_t count, size_t inner,
                          Left* left) {
  Shorts beyond = {};
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t k = 0; k < inner / kInner; ++k) {
      Shorts both = {};
      if (row < count) {
        std::memcpy(&both, rows + row * inner + k * kInner, sizeof(both));
      }
      beyond |= both + 0x80;
      left->low_for_low[k][row] = both & 0xff;
      left->low_for_high[k][row] = both << 8;
      left->high_for_low[k][row] = both >> 8;
      left->high_for_high[k][row] = both & 0xff00;
    }
  }
  uint16_t all = 0;
  for (size_t i = 0; i < kInner; ++i) all |= beyond[i];
  return all <= 0xff;
}

// GCC does not know that these instructions read and write memory.
void Fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

KVCOMPRESS_AMX void StoreTiles(Sums* sums) {
  Fence();
  _tile_stored(0, sums->of[0], kRowSize);
  _tile_stored(1, sums->of[1], kRowSize);
  _tile_stored(2, sums->of[2], kRowSize);
  _tile_stored(3, sums->of[3], kRowSize);
  Fence();
}

KVCOMPRESS_AMX void ZeroTiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Of rows of signed bytes, 2 * kColumns columns of the product.
KVCOMPRESS_AMX void MultiplyBytes(const Left& left, const int16_t* pairs,
                                  size_t count, ProductShape shape,
                                  int32_t* product) {
  Sums sums;
  ZeroTiles();
  for (size_t k = 0; k < shape.inner / kInner; ++k) {
    const int16_t* const right = pairs + k * kInner * shape.columns;
    _tile_loadd(4, left.low_for_low[k], kRowSize);
    _tile_loadd(5, left.low_for_high[k], kRowSize);
    _tile_loadd(6, right, shape.columns * 4);
    _tile_loadd(7, right + 2 * kColumns, shape.columns * 4);
    _tile_dpbsud(0, 4, 6);
    _tile_dpbssd(1, 5, 6);
    _tile_dpbsud(2, 4, 7);
    _tile_dpbssd(3, 5, 7);
  }
  StoreTiles(&sums);
  for (size_t row = 0; row < count; ++row) {
    const Ints both[2] = {sums.of[0][row] + (sums.of[1][row] << 8),
                          sums.of[2][row] + (sums.of[3][row] << 8)};
    std::memcpy(product + row * shape.columns, both, sizeof(both));
  }
}

// Of any rows, kColumns columns of the product.
KVCOMPRESS_AMX void MultiplyWide(const Left& left, const int16_t* pairs,
                                 size_t count, ProductShape shape,
                                 int32_t* product) {
  Sums sums;
  ZeroTiles();
  for (size_t k = 0; k < shape.inner / kInner; ++k) {
    _tile_loadd(6, pairs + k * kInner * shape.columns, shape.columns * 4);
    _tile_loadd(4, left.low_for_low[k], kRowSize);
    _tile_loadd(5, left.low_for_high[k], kRowSize);
    _tile_dpbuud(0, 4, 6);
    _tile_dpbusd(1, 5, 6);
    _tile_loadd(4, left.high_for_low[k], kRowSize);
    _tile_loadd(5, left.high_for_high[k], kRowSize);
    _tile_dpbsud(2, 4, 6);
    _tile_dpbssd(3, 5, 6);
  }
  StoreTiles(&sums);
  for (size_t row = 0; row < count; ++row) {
    const Ints upper =
        sums.of[1][row] + sums.of[2][row] + (sums.of[3][row] << 8);
    const Ints sum = sums.of[0][row] + (upper << 8);
    std::memcpy(product + row * shape.columns, &sum, sizeof(sum));
  }
}

KVCOMPRESS_AMX void Multiply(const int16_t* left, const int16_t* right,
                             ProductShape shape, int32_t* product) {
  if (shape.inner % kInner != 0 || shape.inner > kMostInner ||
      shape.columns % (2 * kColumns) != 0 || shape.rows < kRows / 2) {
    Vnni()->multiply(left, right, shape, product);
    return;
  }
  Left tiles;
  _tile_loadconfig(&kTiles);
  for (size_t row = 0; row < shape.rows; row += kRows) {
    const size_t count = std::min(kRows, shape.rows - row);
    const bool bytes =
        Split(left + row * shape.inner, count, shape.inner, &tiles);
    Fence();
    const size_t step = bytes ? 2 * kColumns : kColumns;
    for (size_t column = 0; column < shape.columns; column += step) {
      (bytes ? MultiplyBytes : MultiplyWide)(
          tiles, right + 2 * column, count, shape,
          product + row * shape.columns + column);
    }
  }
  _tile_release();
}

#undef KVCOMPRESS_AMX

// CPUID leaf 7: bits of EDX.
constexpr unsigned kAmxTile = 1u << 24;
constexpr unsigned kAmxInt8 = 1u << 25;
// arch_prctl(2): Linux gives a process the state of the tiles when it asks.
constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;               // XFEATURE_XTILEDATA

bool MayUseTiles() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxTile) != 0 &&
         (d & kAmxInt8) != 0 &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

MultiplyInt16 AmxMultiply() {
  static const bool may = Vnni() != nullptr && MayUseTiles();
  return may ? Multiply : nullptr;
}

}  // namespace kvcompress::kernels

#else

namespace kvcompress::kernels {

MultiplyInt16 AmxMultiply() { return nullptr; }

}  // namespace kvcompress::kernels

#endif
