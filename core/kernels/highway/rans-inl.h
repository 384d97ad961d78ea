// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rANS coder of kernels/rans.h in vectors, for the target being compiled.

#include <array>
#include <bit>

#include "kernels/highway/vectors-inl.h"
#include "kernels/rans.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_RANS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_RANS_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_RANS_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_RANS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

inline constexpr size_t kRansVectors = kRansLanes / kLanes;

// For each set of lanes that are due a word, which lane of a vector goes where.
struct LaneOrders {
  uint8_t lanes[1 << kLanes][kLanes];
};

// Lane i takes the next word if it is due one.
inline constexpr LaneOrders kExpand = [] {
  LaneOrders orders = {};
  for (unsigned due = 0; due < 1u << kLanes; ++due) {
    uint8_t next = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if (due >> lane & 1) orders.lanes[due][lane] = next++;
    }
  }
  return orders;
}();

// The lanes that are due come last, in their order.
inline constexpr LaneOrders kGather = [] {
  LaneOrders orders = {};
  for (unsigned due = 0; due < 1u << kLanes; ++due) {
    size_t place = kLanes;
    for (unsigned lane = kLanes; lane-- > 0;) {
      if (due >> lane & 1) {
        orders.lanes[due][--place] = static_cast<uint8_t>(lane);
      }
    }
  }
  return orders;
}();

HWY_INLINE Word Reorder(Word value, const LaneOrders& orders, unsigned due) {
  const Words d;
  const Word order = hn::PromoteTo(d, hn::LoadU(Bytes(), orders.lanes[due]));
  return hn::TableLookupLanes(value, hn::IndicesFromVec(d, order));
}

HWY_INLINE unsigned BitsOf(hn::Mask<Ints> mask) {
  uint8_t bits[8];
  hn::StoreMaskBits(Ints(), mask, bits);
  return bits[0];
}

// table[index] in each lane. Loads one by one are faster than a gather on many
// processors, and never much slower.
HWY_INLINE Word LookUp(const uint32_t* table, Word index) {
#if HWY_TARGET == HWY_AVX2
  const __m128i low = _mm256_castsi256_si128(index.raw);
  const __m128i high = _mm256_extracti128_si256(index.raw, 1);
  const auto four = [table](__m128i at) KVCOMPRESS_INLINE {
    const uint64_t a = static_cast<uint64_t>(_mm_cvtsi128_si64(at));
    const uint64_t b = static_cast<uint64_t>(_mm_extract_epi64(at, 1));
    __m128i result = _mm_cvtsi32_si128(static_cast<int>(table[a & 0xffffffff]));
    result = _mm_insert_epi32(result, static_cast<int>(table[a >> 32]), 1);
    result =
        _mm_insert_epi32(result, static_cast<int>(table[b & 0xffffffff]), 2);
    return _mm_insert_epi32(result, static_cast<int>(table[b >> 32]), 3);
  };
  return Word{_mm256_set_m128i(four(high), four(low))};
#else
  return hn::GatherIndex(Words(), table, hn::BitCast(Ints(), index));
#endif
}

// `first` in the lower half of each lane and the frequency in the upper.
struct Intervals {
  Word bounds;
  Float inverse;
};

HWY_INLINE Intervals LookUp(const RansInterval* table, const uint16_t* index) {
#if HWY_TARGET == HWY_AVX2
  const auto two = [&](size_t i, size_t j) KVCOMPRESS_INLINE {
    const __m128i low =
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&table[index[i]]));
    return _mm_loadh_pi(_mm_castsi128_ps(low),
                        reinterpret_cast<const __m64*>(&table[index[j]]));
  };
  const __m256 a = _mm256_set_m128(two(4, 5), two(0, 1));
  const __m256 b = _mm256_set_m128(two(6, 7), two(2, 3));
  return {Word{_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88))},
          Float{_mm256_shuffle_ps(a, b, 0xdd)}};
#else
  alignas(16) uint32_t bounds[kLanes];
  alignas(16) float inverse[kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    const RansInterval& interval = table[index[i]];
    bounds[i] =
        static_cast<uint32_t>(interval.frequency) << 16 | interval.first;
    inverse[i] = interval.inverse;
  }
  return {hn::Load(Words(), bounds), hn::Load(Floats(), inverse)};
#endif
}

#if HWY_TARGET == HWY_AVX3

// Half of the lanes of a row in a vector: masks mark which are due a word, and
// put words together or apart.
inline constexpr size_t kHalf = kRansLanes / 2;

// The entries of a half row. Loads one by one are faster than a gather here.
HWY_INLINE void LookUpHalf(const RansInterval* table, const uint16_t* index,
                           __m512i* bounds, __m512* inverse) {
  const auto two = [&](size_t i) KVCOMPRESS_INLINE {
    const __m128i low =
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&table[index[i]]));
    return _mm_loadh_pi(_mm_castsi128_ps(low),
                        reinterpret_cast<const __m64*>(&table[index[i + 1]]));
  };
  const auto eight = [&](size_t i) KVCOMPRESS_INLINE {
    return _mm512_insertf32x8(
        _mm512_castps256_ps512(_mm256_set_m128(two(i + 4), two(i))),
        _mm256_set_m128(two(i + 12), two(i + 8)), 1);
  };
  const __m512 a = eight(0);
  const __m512 b = eight(2);
  *bounds = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
  *inverse = _mm512_shuffle_ps(a, b, 0xdd);
}

inline uint16_t* EncodeRansRows(const RansInterval* intervals,
                                const uint16_t* rows, size_t count,
                                uint32_t* states, uint16_t* words) {
  const __m512i low = _mm512_set1_epi32(0xffff);
  const __m512i slots = _mm512_set1_epi32(kRansSlots);
  __m512i x[2] = {_mm512_loadu_si512(states),
                  _mm512_loadu_si512(states + kHalf)};
  const uint16_t* row = rows + count * kRansLanes;
  for (size_t i = 0; i < count; ++i) {
    row -= kRansLanes;
    for (size_t v = 2; v-- > 0;) {
      __m512i bounds;
      __m512 inverse;
      LookUpHalf(intervals, row + v * kHalf, &bounds, &inverse);
      const __m512i frequency = _mm512_srli_epi32(bounds, 16);
      const __m512i first = _mm512_and_si512(bounds, low);
      const __mmask16 due = _mm512_cmpge_epu32_mask(
          x[v], _mm512_slli_epi32(frequency, 31 - kRansSlotBits));
      const int due_count = std::popcount(static_cast<unsigned>(due));
      words -= due_count;
      _mm256_mask_storeu_epi16(
          words, static_cast<__mmask16>((1u << due_count) - 1),
          _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(due, x[v])));
      const __m512i state = _mm512_mask_srli_epi32(x[v], due, x[v], 16);
      // The quotient or one less; the remainder shows which.
      const __m512i quotient = _mm512_cvttps_epi32(
          _mm512_mul_ps(_mm512_cvtepi32_ps(state), inverse));
      const __m512i rest =
          _mm512_sub_epi32(state, _mm512_mullo_epi32(quotient, frequency));
      const __mmask16 is_less = _mm512_cmpge_epu32_mask(rest, frequency);
      const __m512i coded = _mm512_add_epi32(
          _mm512_add_epi32(_mm512_slli_epi32(quotient, kRansSlotBits), rest),
          first);
      x[v] = _mm512_mask_add_epi32(coded, is_less, coded,
                                   _mm512_sub_epi32(slots, frequency));
    }
  }
  _mm512_storeu_si512(states, x[0]);
  _mm512_storeu_si512(states + kHalf, x[1]);
  return words;
}

inline size_t DecodeRansRows(const uint32_t* slots,
                             const uint8_t* const* tables, size_t count,
                             uint32_t* states, const uint8_t** words,
                             const uint8_t* end, int8_t* rows) {
  constexpr ptrdiff_t kMax = kRansLanes * sizeof(uint16_t);
  const __m512i slot_mask = _mm512_set1_epi32(kRansSlots - 1);
  const __m512i field = _mm512_set1_epi32(0xfff);
  const __m512i lowest = _mm512_set1_epi32(kRansLowest);
  __m512i x[2] = {_mm512_loadu_si512(states),
                  _mm512_loadu_si512(states + kHalf)};
  const uint8_t* next = *words;
  size_t row = 0;
  for (; row < count && end - next >= kMax; ++row, rows += kRansLanes) {
    for (size_t v = 0; v < 2; ++v) {
      const __m512i table = _mm512_cvtepu8_epi32(_mm_loadu_si128(
          reinterpret_cast<const __m128i*>(tables[row] + v * kHalf)));
      const __m512i slot = _mm512_i32gather_epi32(
          _mm512_or_si512(_mm512_slli_epi32(table, kRansSlotBits),
                          _mm512_and_si512(x[v], slot_mask)),
          slots, sizeof(uint32_t));
      const __m512i state = _mm512_add_epi32(
          _mm512_mullo_epi32(
              _mm512_and_si512(_mm512_srli_epi32(slot, 12), field),
              _mm512_srli_epi32(x[v], kRansSlotBits)),
          _mm512_and_si512(slot, field));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(rows + v * kHalf),
                       _mm512_cvtepi32_epi8(_mm512_srli_epi32(slot, 24)));
      const __mmask16 due = _mm512_cmplt_epu32_mask(state, lowest);
      const __m512i word = _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next)));
      next += sizeof(uint16_t) *
              static_cast<size_t>(std::popcount(static_cast<unsigned>(due)));
      x[v] = _mm512_or_si512(_mm512_mask_slli_epi32(state, due, state, 16),
                             _mm512_maskz_expand_epi32(due, word));
    }
  }
  _mm512_storeu_si512(states, x[0]);
  _mm512_storeu_si512(states + kHalf, x[1]);
  *words = next;
  return row;
}

#else

inline uint16_t* EncodeRansRows(const RansInterval* intervals,
                                const uint16_t* rows, size_t count,
                                uint32_t* states, uint16_t* words) {
  const Words d;
  const Ints di;
  const Word low = hn::Set(d, 0xffff);
  Word x[kRansVectors];
  for (size_t v = 0; v < kRansVectors; ++v) {
    x[v] = hn::LoadU(d, states + v * kLanes);
  }
  const uint16_t* row = rows + count * kRansLanes;
  for (size_t i = 0; i < count; ++i) {
    row -= kRansLanes;
    for (size_t v = kRansVectors; v-- > 0;) {
      const Intervals interval = LookUp(intervals, row + v * kLanes);
      const Word frequency = hn::ShiftRight<16>(interval.bounds);
      const Word first = hn::And(interval.bounds, low);
      // States and bounds are below 2^31.
      const Word bound =
          hn::Sub(hn::ShiftLeft<31 - kRansSlotBits>(frequency), hn::Set(d, 1));
      const auto due = hn::Gt(hn::BitCast(di, x[v]), hn::BitCast(di, bound));
      const unsigned bits = BitsOf(due);
      hn::StoreU(
          hn::TruncateTo(Shorts(), Reorder(hn::And(x[v], low), kGather, bits)),
          Shorts(), words - kLanes);
      words -= std::popcount(bits);
      const Word state = hn::IfThenElse(hn::RebindMask(d, due),
                                        hn::ShiftRight<16>(x[v]), x[v]);
      // The quotient or one less; the remainder shows which.
      const Float guess = hn::Mul(
          hn::ConvertTo(Floats(), hn::BitCast(di, state)), interval.inverse);
      // At 2^23 the last place is 1: rounds (guess - 1/2), at least 15.
      const Float rounded = hn::Add(guess, hn::Set(Floats(), 0x1p23f - 0.5f));
      const Word quotient =
          hn::Sub(hn::BitCast(d, rounded), hn::Set(d, 0x4b000000));
      const Word rest = hn::Sub(state, hn::Mul(quotient, frequency));
      const auto exact =
          hn::Gt(hn::BitCast(di, frequency), hn::BitCast(di, rest));
      const Word correction = hn::IfThenZeroElse(
          hn::RebindMask(d, exact), hn::Sub(hn::Set(d, kRansSlots), frequency));
      x[v] = hn::Add(hn::Add(hn::ShiftLeft<kRansSlotBits>(quotient), rest),
                     hn::Add(first, correction));
    }
  }
  for (size_t v = 0; v < kRansVectors; ++v) {
    hn::StoreU(x[v], d, states + v * kLanes);
  }
  return words;
}

inline size_t DecodeRansRows(const uint32_t* slots,
                             const uint8_t* const* tables, size_t count,
                             uint32_t* states, const uint8_t** words,
                             const uint8_t* end, int8_t* rows) {
  constexpr ptrdiff_t kMax = kRansLanes * sizeof(uint16_t);
  const Words d;
  const Ints di;
  const Word slot_mask = hn::Set(d, kRansSlots - 1);
  const Word field = hn::Set(d, 0xfff);
  Word x[kRansVectors];
  for (size_t v = 0; v < kRansVectors; ++v) {
    x[v] = hn::LoadU(d, states + v * kLanes);
  }
  const uint8_t* next = *words;
  size_t row = 0;
  for (; row < count && end - next >= kMax; ++row, rows += kRansLanes) {
    for (size_t v = 0; v < kRansVectors; ++v) {
      const Word table =
          hn::PromoteTo(d, hn::LoadU(Bytes(), tables[row] + v * kLanes));
      const Word slot =
          LookUp(slots, hn::Or(hn::ShiftLeft<kRansSlotBits>(table),
                               hn::And(x[v], slot_mask)));
      const Word state =
          hn::Add(hn::Mul(hn::And(hn::ShiftRight<12>(slot), field),
                          hn::ShiftRight<kRansSlotBits>(x[v])),
                  hn::And(slot, field));
      hn::StoreU(hn::DemoteTo(SignedBytes(),
                              hn::ShiftRight<24>(hn::BitCast(di, slot))),
                 SignedBytes(), rows + v * kLanes);
      const auto due = hn::Lt(hn::BitCast(di, state), hn::Set(di, kRansLowest));
      const unsigned bits = BitsOf(due);
      const Word word = Reorder(LoadShorts(next), kExpand, bits);
      next += sizeof(uint16_t) * std::popcount(bits);
      x[v] = hn::IfThenElse(hn::RebindMask(d, due),
                            hn::Or(hn::ShiftLeft<16>(state), word), state);
    }
  }
  for (size_t v = 0; v < kRansVectors; ++v) {
    hn::StoreU(x[v], d, states + v * kLanes);
  }
  *words = next;
  return row;
}

#endif  // HWY_TARGET == HWY_AVX3

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
