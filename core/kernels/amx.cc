// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/amx.h"

#include "kernels/vnni.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)

#include <cpuid.h>
// GCC 12 takes what its own header leaves undefined for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace kvcompress::kernels {
namespace {

#define KVCOMPRESS_AMX \
  __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw")))

// A tile: 16 rows of 64 bytes. Of a left matrix they are rows of it; of a right
// one, four rows of 16 columns, the four bytes of a column side by side.
constexpr size_t kRows = 16;
constexpr size_t kInner = 64;
constexpr size_t kColumns = 16;
constexpr size_t kMaxInner = 256;
constexpr size_t kRowSize = 64;  // bytes
constexpr size_t kTileSize = kRows * kRowSize;

// What LDTILECFG takes: all eight tiles whole.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_sizes[16] = {kRowSize, kRowSize, kRowSize, kRowSize,
                            kRowSize, kRowSize, kRowSize, kRowSize};
  uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};
};
constexpr TileConfiguration kConfiguration;

// The instructions multiply bytes and add up four products, so integers are
// taken apart into a low byte, without a sign, and a high one. A prepared right
// matrix is, for 16 columns after the other, the tiles of their low bytes, 64
// rows each, and then those of their high ones.
using Ints = uint32_t __attribute__((vector_size(kRowSize)));
using LeftTiles = uint8_t[kMaxInner / kInner][kTileSize];
struct alignas(kRowSize) Left {
  LeftTiles low;
  LeftTiles high;
};

bool FitTiles(size_t inner, size_t columns) {
  return inner % kInner == 0 && inner <= kMaxInner && columns % kColumns == 0;
}

KVCOMPRESS_AMX void Prepare(const int16_t* pairs, size_t inner, size_t columns,
                            int16_t* right) {
  if (!FitTiles(inner, columns)) {
    std::copy_n(pairs, inner * columns, right);
    return;
  }
  // Of two integers the low bytes, then the high ones.
  const __m512i order = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  uint8_t* bytes = reinterpret_cast<uint8_t*>(right);
  for (size_t column = 0; column < columns; column += kColumns) {
    const int16_t* from = pairs + 2 * column;
    for (size_t k = 0; k < inner; k += 4, from += 4 * columns) {
      const __m512i first =
          _mm512_shuffle_epi8(_mm512_loadu_si512(from), order);
      const __m512i second =
          _mm512_shuffle_epi8(_mm512_loadu_si512(from + 2 * columns), order);
      const __m512i low = _mm512_or_si512(_mm512_andnot_si512(upper, first),
                                          _mm512_slli_epi32(second, 16));
      const __m512i high = _mm512_or_si512(_mm512_srli_epi32(first, 16),
                                           _mm512_and_si512(second, upper));
      // Four rows fill a row of a tile.
      _mm512_storeu_si512(bytes, low);
      _mm512_storeu_si512(bytes + inner * kColumns, high);
      bytes += kRowSize;
    }
    bytes += inner * kColumns;
  }
}

// Splits up to kRows rows; the others are zeros. True when each integer is one
// signed byte, its low one.
KVCOMPRESS_AMX bool Split(const int16_t* rows, size_t count, size_t inner,
                          Left* left) {
  __m512i beyond = _mm512_setzero_si512();
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t k = 0; k < inner; k += kInner / 2) {
      const __m512i both = row < count
                               ? _mm512_loadu_si512(rows + row * inner + k)
                               : _mm512_setzero_si512();
      beyond = _mm512_or_si512(beyond,
                               _mm512_add_epi16(both, _mm512_set1_epi16(0x80)));
      const size_t at = row * kRowSize + k % kInner;
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(left->low[k / kInner] + at),
          _mm512_cvtepi16_epi8(both));
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(left->high[k / kInner] + at),
          _mm512_cvtepi16_epi8(_mm512_srli_epi16(both, 8)));
    }
  }
  return _mm512_test_epi16_mask(
             beyond, _mm512_set1_epi16(static_cast<int16_t>(0xff00))) == 0;
}

// GCC does not know that these instructions read and write memory.
void Fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Tiles are named in the instructions themselves.
#define KVCOMPRESS_ADD_PRODUCT(left)    \
  _tile_loadd(6, right, kRowSize);      \
  right += kTileSize;                   \
  if constexpr (kLeftSigned && kHigh) { \
    _tile_dpbssd(0, left, 6);           \
  } else if constexpr (kLeftSigned) {   \
    _tile_dpbsud(0, left, 6);           \
  } else if constexpr (kHigh) {         \
    _tile_dpbusd(0, left, 6);           \
  } else {                              \
    _tile_dpbuud(0, left, 6);           \
  }

// Sums of products with one byte of kColumns columns. One tile has the sums,
// and one what is multiplied: processors have room for few tiles more than
// programs can name, and products that follow each other need it. Zeros come
// from memory, which takes less time than TILEZERO does when it is followed by
// a product. Gives where the next tile of the right matrix is.
template <bool kLeftSigned, bool kHigh, size_t kTiles>
KVCOMPRESS_AMX inline const uint8_t* SumProducts(const uint8_t* right,
                                                 Ints* sums) {
  static constexpr Ints kZeros = {};
  _tile_loadd(0, &kZeros, 0);
  KVCOMPRESS_ADD_PRODUCT(2)
  if constexpr (kTiles > 1) {
    KVCOMPRESS_ADD_PRODUCT(3)
  }
  if constexpr (kTiles > 2) {
    KVCOMPRESS_ADD_PRODUCT(4)
  }
  if constexpr (kTiles > 3) {
    KVCOMPRESS_ADD_PRODUCT(5)
  }
  _tile_stored(0, sums, kRowSize);
  return right;
}

#undef KVCOMPRESS_ADD_PRODUCT

// Up to kRows rows of the product, by one byte of the left matrix; with kAdds,
// 256 times that is added to what is there.
template <bool kLeftSigned, bool kAdds, size_t kTiles>
KVCOMPRESS_AMX void MultiplyBytes(const LeftTiles& left, const uint8_t* right,
                                  size_t count, size_t columns,
                                  int32_t* product) {
  Ints low[kRows];
  Ints high[kRows];
  _tile_loadd(2, left[0], kRowSize);
  if constexpr (kTiles > 1) _tile_loadd(3, left[1], kRowSize);
  if constexpr (kTiles > 2) _tile_loadd(4, left[2], kRowSize);
  if constexpr (kTiles > 3) _tile_loadd(5, left[3], kRowSize);
  for (size_t column = 0; column < columns; column += kColumns) {
    right = SumProducts<kLeftSigned, false, kTiles>(right, low);
    right = SumProducts<kLeftSigned, true, kTiles>(right, high);
    Fence();
    int32_t* out = product + column;
    for (size_t row = 0; row < count; ++row, out += columns) {
      Ints sum = low[row] + (high[row] << 8);
      if constexpr (kAdds) {
        Ints before;
        std::memcpy(&before, out, sizeof(before));
        sum = before + (sum << 8);
      }
      std::memcpy(out, &sum, sizeof(sum));
    }
    Fence();
  }
}

template <size_t kTiles>
KVCOMPRESS_AMX void MultiplyRows(const int16_t* left, const uint8_t* right,
                                 ProductShape shape, int32_t* product) {
  Left tiles;
  _tile_loadconfig(&kConfiguration);
  for (size_t row = 0; row < shape.rows; row += kRows) {
    const size_t count = std::min(kRows, shape.rows - row);
    int32_t* const out = product + row * shape.columns;
    const bool is_bytes =
        Split(left + row * shape.inner, count, shape.inner, &tiles);
    Fence();
    if (is_bytes) {
      MultiplyBytes<true, false, kTiles>(tiles.low, right, count, shape.columns,
                                         out);
    } else {
      MultiplyBytes<false, false, kTiles>(tiles.low, right, count,
                                          shape.columns, out);
      MultiplyBytes<true, true, kTiles>(tiles.high, right, count, shape.columns,
                                        out);
    }
  }
  _tile_release();
}

void Multiply(const int16_t* left, const int16_t* right, ProductShape shape,
              int32_t* product) {
  const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(right);
  if (!FitTiles(shape.inner, shape.columns)) {
    Vnni()->multiply(left, right, shape, product);
  } else if (shape.inner == kInner) {
    MultiplyRows<1>(left, bytes, shape, product);
  } else if (shape.inner == 2 * kInner) {
    MultiplyRows<2>(left, bytes, shape, product);
  } else if (shape.inner == 3 * kInner) {
    MultiplyRows<3>(left, bytes, shape, product);
  } else {
    MultiplyRows<4>(left, bytes, shape, product);
  }
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

const ProductKernels* Amx() {
  static constexpr ProductKernels kKernels = {.prepare = Prepare,
                                              .multiply = Multiply};
  static const bool may = Vnni() != nullptr && MayUseTiles();
  return may ? &kKernels : nullptr;
}

}  // namespace kvcompress::kernels

#else

namespace kvcompress::kernels {

const ProductKernels* Amx() { return nullptr; }

}  // namespace kvcompress::kernels

#endif
