// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/amx.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace kvcompress::kernels {
namespace {

#define KVCOMPRESS_AMX \
  __attribute__((      \
      target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-int8")))

// The intrinsics of GCC 12 say nothing of the memory that a load reads. These
// do neither: Begin() orders what was written before, and nothing that a kernel
// loads is written in it.
#define TILE_LOAD(tile, from)                                  \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), \
               "r"(int64_t{kTileInner}))
#define TILE_STORE(tile, to)                                     \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), \
               "r"(int64_t{kTileInner})                          \
               : "memory")
#define TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::)
// sums += left * right; s or u: signed or unsigned, left and right.
#define TILE_ADD(signs, sums, left, right)                    \
  asm volatile("tdpb" #signs "d %%tmm" #right ", %%tmm" #left \
               ", %%tmm" #sums ::)

struct alignas(64) Configuration {
  Configuration() {
    std::fill_n(row_bytes, 8, uint16_t{kTileInner});
    std::fill_n(rows, 8, uint8_t{kTileRows});
  }
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(Configuration) == 64);

KVCOMPRESS_AMX void Begin() {
  static const Configuration configuration;
  asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
}
KVCOMPRESS_AMX void End() { asm volatile("tilerelease" ::: "memory"); }

// With a mask that takes all: without one GCC 12 warns of the uninitialized
// operand in its own header.
KVCOMPRESS_AMX inline __m512i Shift(__m512i sums, unsigned bits) {
  return _mm512_maskz_sll_epi32(0xffff, sums, _mm_cvtsi32_si128(bits));
}

// Numbers of the bits that are set in a mask, or in one of two.
size_t Places(const uint64_t* one, const uint64_t* other, size_t tiles,
              uint16_t* places) {
  size_t count = 0;
  for (size_t word = 0; word * 64 < tiles; ++word) {
    for (uint64_t bits = one[word] | other[word]; bits != 0; bits &= bits - 1) {
      places[count++] =
          static_cast<uint16_t>(word * 64 + std::countr_zero(bits));
    }
  }
  return count;
}

// The products of two row tiles (perhaps the same) with 16 columns: sums of
// high bytes and of low ones.
KVCOMPRESS_AMX inline bool MultiplyPair(const LeftTiles& left, size_t row_tile,
                                        size_t other, const int8_t* right,
                                        int32_t (*sums)[kTileSums]) {
  uint16_t places[kMaxInnerTiles];
  const size_t count =
      Places(left.masks[row_tile], left.masks[other], left.inner_tiles, places);
  if (count == 0) return false;
  const int8_t* const first =
      left.tiles + row_tile * left.inner_tiles * kTileBytes;
  const int8_t* const second =
      left.tiles + other * left.inner_tiles * kTileBytes;
  TILE_ZERO(0);
  TILE_ZERO(1);
  TILE_ZERO(2);
  TILE_ZERO(3);
  for (size_t k = 0; k < count; ++k) {
    const size_t at = places[k] * kTileBytes;
    TILE_LOAD(6, right + 2 * at);
    TILE_LOAD(4, first + at);
    TILE_ADD(ss, 0, 4, 6);
    TILE_LOAD(5, second + at);
    TILE_ADD(ss, 1, 5, 6);
    TILE_LOAD(7, right + 2 * at + kTileBytes);
    TILE_ADD(su, 2, 4, 7);
    TILE_ADD(su, 3, 5, 7);
  }
  TILE_STORE(0, sums[0]);
  TILE_STORE(1, sums[1]);
  TILE_STORE(2, sums[2]);
  TILE_STORE(3, sums[3]);
  return true;
}

// What sums of a column tile become.
struct Finish {
  __m512 scales;
  __m512 means;
  __mmask16 mask;
  size_t stride;
};

KVCOMPRESS_AMX inline __m512i Joined(const int32_t* high, const int32_t* low) {
  return _mm512_add_epi32(Shift(_mm512_load_si512(high), 8),
                          _mm512_load_si512(low));
}

// Rows of a row tile, `sums` those of high and of low bytes of the matrix from
// the first of them on, `more` the same of the high bytes of quanta, or null.
KVCOMPRESS_AMX inline void FinishRows(const int32_t* const (&sums)[2],
                                      const int32_t* const (&more)[2],
                                      const float* units, size_t rows,
                                      const Finish& finish, float* values) {
  for (size_t i = 0; i < rows; ++i, values += finish.stride) {
    const size_t at = i * kTileRows;
    __m512i sum = Joined(sums[0] + at, sums[1] + at);
    if (more[0] != nullptr) {
      sum = _mm512_add_epi32(sum, Shift(Joined(more[0] + at, more[1] + at), 8));
    }
    const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(units[i]), finish.scales);
    const __m512 whole = _mm512_maskz_cvtepi32_ps(0xffff, sum);
    _mm512_mask_storeu_ps(
        values, finish.mask,
        _mm512_add_ps(_mm512_mul_ps(whole, scale), finish.means));
  }
}

KVCOMPRESS_AMX void Restore(const RestoreTilesJob& job) {
  alignas(64) int32_t low[4][kTileSums];
  alignas(64) int32_t high[4][kTileSums];
  const size_t begin = job.first / kTileRows;
  const size_t last = job.first + job.count;
  const size_t end = (last + kTileRows - 1) / kTileRows;
  Begin();
  for (size_t column = 0; column < job.columns; column += kTileRows) {
    const int8_t* const right =
        job.right + column / kTileRows * job.right_tiles * 2 * kTileBytes;
    const Finish finish = {
        .scales = _mm512_loadu_ps(job.scales + column),
        .means = _mm512_loadu_ps(job.means + column),
        .mask = static_cast<__mmask16>(job.columns - column >= kTileRows
                                           ? 0xffff
                                           : (1 << (job.columns - column)) - 1),
        .stride = job.stride};
    for (size_t tile = begin; tile < end; tile += 2) {
      const size_t other = std::min(tile + 1, end - 1);
      if (!MultiplyPair(job.low, tile, other, right, low)) {
        std::memset(low, 0, sizeof(low));
      }
      const bool has_high = job.high.inner_tiles > 0 &&
                            MultiplyPair(job.high, tile, other, right, high);
      for (size_t half = 0; half <= other - tile; ++half) {
        const size_t of_tile = (tile + half) * kTileRows;
        const size_t from = std::max(job.first, of_tile);
        const size_t rows = std::min(last, of_tile + kTileRows) - from;
        const size_t at = (from - of_tile) * kTileRows;
        FinishRows({&low[half][at], &low[2 + half][at]},
                   {has_high ? &high[half][at] : nullptr,
                    has_high ? &high[2 + half][at] : nullptr},
                   job.units + (from - job.first), rows, finish,
                   job.values + (from - job.first) * job.stride + column);
      }
    }
  }
  End();
}

KVCOMPRESS_AMX void TakeSymbols(const int8_t* symbols, size_t tokens,
                                size_t inner, size_t inner_tiles, int8_t* tiles,
                                uint64_t (*masks)[kMaskWords], uint32_t* sums,
                                uint8_t* any) {
  constexpr size_t kHalf = kTileInner / 2;
  const size_t tile = inner / kTileInner;
  __m256i all = _mm256_setzero_si256();
  for (size_t first = 0; first < tokens; first += kTileRows) {
    int8_t* to = tiles + (first / kTileRows * inner_tiles + tile) * kTileBytes +
                 inner % kTileInner;
    __m256i of_tile = _mm256_setzero_si256();
    const size_t end = std::min(tokens, first + kTileRows);
    for (size_t t = first; t < end; ++t, to += kTileInner) {
      const __m256i row = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(symbols + t * kHalf));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), row);
      of_tile = _mm256_or_si256(of_tile, row);
      const __m256i sad =
          _mm256_sad_epu8(_mm256_abs_epi8(row), _mm256_setzero_si256());
      const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sad),
                                         _mm256_extracti128_si256(sad, 1));
      sums[t] += static_cast<uint32_t>(_mm_cvtsi128_si64(half)) +
                 static_cast<uint32_t>(_mm_extract_epi64(half, 1));
    }
    if (!_mm256_testz_si256(of_tile, of_tile)) {
      masks[first / kTileRows][tile / 64] |= uint64_t{1} << (tile % 64);
    }
    all = _mm256_or_si256(all, of_tile);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(any), all);
}

KVCOMPRESS_AMX void Split(const int16_t* integers, InnerBlocks blocks,
                          size_t token, int8_t* tiles) {
  constexpr size_t kRowTiles = kTileTokens / kTileRows;
  const size_t row_tile = token / kTileRows;
  for (size_t b = 0; b < blocks.count; ++b) {
    int8_t* to = tiles + (b * kRowTiles + row_tile) * blocks.bytes() +
                 token % kTileRows * kTileInner;
    for (size_t k = 0; k < blocks.tiles; ++k, to += 2 * kTileBytes) {
      for (size_t half = 0; half < 2; ++half, integers += 32) {
        const __m512i row = _mm512_loadu_si512(integers);
        _mm256_storeu_si256(
            reinterpret_cast<__m256i*>(to + half * 32),
            _mm512_maskz_cvtepi16_epi8(~0u, _mm512_srai_epi16(row, 8)));
        _mm256_storeu_si256(
            reinterpret_cast<__m256i*>(to + kTileBytes + half * 32),
            _mm512_maskz_cvtepi16_epi8(~0u, row));
      }
    }
  }
}

// All four products of a row tile and a column tile of a block, to `parts`:
// those of high bytes, the two of high and low ones, and those of low ones.
// Asks for the next column tile meanwhile, some lines of it with each tile.
KVCOMPRESS_AMX inline void MultiplyBlock(const int8_t* left,
                                         const int8_t* right, size_t tiles,
                                         const int8_t** next, const int8_t* end,
                                         size_t ahead,
                                         int32_t (*parts)[kTileSums]) {
  TILE_ZERO(0);
  TILE_ZERO(1);
  TILE_ZERO(2);
  TILE_ZERO(3);
  for (size_t k = 0; k < tiles;
       ++k, left += 2 * kTileBytes, right += 2 * kTileBytes) {
    for (size_t i = 0; i < ahead && *next < end; ++i, *next += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(*next), _MM_HINT_T0);
    }
    TILE_LOAD(4, left);
    TILE_LOAD(6, right);
    TILE_ADD(ss, 0, 4, 6);
    TILE_LOAD(5, left + kTileBytes);
    TILE_ADD(us, 1, 5, 6);
    TILE_LOAD(7, right + kTileBytes);
    TILE_ADD(su, 2, 4, 7);
    TILE_ADD(uu, 3, 5, 7);
  }
  TILE_STORE(0, parts[0]);
  TILE_STORE(1, parts[1]);
  TILE_STORE(2, parts[2]);
  TILE_STORE(3, parts[3]);
}

// Writes what the products of a block come to, or adds it to what there is.
KVCOMPRESS_AMX inline void JoinParts(const int32_t (*parts)[kTileSums],
                                     bool adds, int32_t* sums) {
  for (size_t i = 0; i < kTileSums; i += kTileRows) {
    const __m512i middle = _mm512_add_epi32(_mm512_load_si512(&parts[1][i]),
                                            _mm512_load_si512(&parts[2][i]));
    __m512i sum = _mm512_add_epi32(
        Shift(_mm512_load_si512(&parts[0][i]), 16),
        _mm512_add_epi32(Shift(middle, 8), _mm512_load_si512(&parts[3][i])));
    if (adds) sum = _mm512_add_epi32(sum, _mm512_loadu_si512(sums + i));
    _mm512_storeu_si512(sums + i, sum);
  }
}

KVCOMPRESS_AMX void Project(const ProjectTilesJob& job) {
  constexpr size_t kRowTiles = kTileTokens / kTileRows;
  alignas(64) int32_t parts[4][kTileSums];
  const size_t rows = (job.tokens + kTileRows - 1) / kTileRows;
  const size_t column_tiles = (job.columns + kTileRows - 1) / kTileRows;
  const size_t bytes = job.blocks.bytes();
  // Lines of the next column tile that are asked for with each of these.
  const size_t steps = rows * job.blocks.tiles;
  const size_t ahead = (bytes / 64 + steps - 1) / steps;
  Begin();
  for (size_t b = 0; b < job.blocks.count; ++b) {
    const int8_t* right =
        job.right + (b * job.column_tiles + job.first) * bytes;
    const int8_t* const end = right + column_tiles * bytes;
    for (size_t c = 0; c < column_tiles; ++c, right += bytes) {
      const int8_t* next = right + bytes;
      for (size_t r = 0; r < rows; ++r) {
        MultiplyBlock(job.left + (b * kRowTiles + r) * bytes, right,
                      job.blocks.tiles, &next, end, ahead, parts);
        JoinParts(parts, b > 0, job.sums + (c * rows + r) * kTileSums);
      }
    }
  }
  End();
  for (size_t t = 0; t < job.tokens; ++t) {
    const __m512 unit = _mm512_set1_ps(job.units[t]);
    const int32_t* from =
        job.sums + t / kTileRows * kTileSums + t % kTileRows * kTileRows;
    for (size_t c = 0; c < job.columns;
         c += kTileRows, from += rows * kTileSums) {
      const auto mask = static_cast<__mmask16>(
          job.columns - c >= kTileRows ? 0xffff : (1 << (job.columns - c)) - 1);
      const __m512 sum =
          _mm512_maskz_cvtepi32_ps(0xffff, _mm512_loadu_si512(from));
      // Adding 0 makes -0 the 0 that other kernels produce.
      _mm512_mask_storeu_ps(
          job.values + t * job.stride + c, mask,
          _mm512_add_ps(_mm512_mul_ps(sum, unit), _mm512_setzero_ps()));
    }
  }
}

#undef KVCOMPRESS_AMX
#undef TILE_LOAD
#undef TILE_STORE
#undef TILE_ZERO
#undef TILE_ADD

bool HasTiles() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  // AMX-TILE and AMX-INT8.
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> 24 & 1) == 0 ||
      (d >> 25 & 1) == 0) {
    return false;
  }
  // Tiles of palette 1 as above.
  if (__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) == 0 || b >> 16 < 8 ||
      (b & 0xffff) < kTileInner || (c & 0xffff) < kTileRows) {
    return false;
  }
  // Linux lets a process use XTILEDATA, component 18, once it asks; threads and
  // children inherit that. It refuses where an alternative signal stack is too
  // small for it, and kernels before 5.16 do not know the question.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::atomic<bool> asked{false};

}  // namespace

bool AllowAmx() {
  static const bool allowed = __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512vl") &&
                              __builtin_cpu_supports("avx512dq") && HasTiles();
  asked = true;
  return allowed;
}

const TileKernels* Amx() {
  static constexpr TileKernels kKernels = {.restore = Restore,
                                           .take_symbols = TakeSymbols,
                                           .split = Split,
                                           .project = Project};
  return asked && AllowAmx() ? &kKernels : nullptr;
}

}  // namespace kvcompress::kernels

#else

namespace kvcompress::kernels {

bool AllowAmx() { return false; }
const TileKernels* Amx() { return nullptr; }

}  // namespace kvcompress::kernels

#endif
