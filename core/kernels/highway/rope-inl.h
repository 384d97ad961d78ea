// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rotary embedding of kernels/rows.h in vectors, for the target being
// compiled.

#include <initializer_list>

#include "kernels/highway/vectors-inl.h"
#include "kernels/rows.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_ROPE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_ROPE_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_ROPE_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_ROPE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

// 64-bit lanes whose lower halves hold numbers in units of 2^-31, or less.
using Phases = hn::Repartition<uint64_t, Doubles>;
using Phase = hn::Vec<Phases>;

HWY_INLINE Phase MultiplyLow(Phase a, Phase b) {
  const hn::Repartition<int32_t, Phases> half;
  return hn::BitCast(Phases(),
                     hn::MulEven(hn::BitCast(half, a), hn::BitCast(half, b)));
}

// (a * b) >> 31 of signed lower halves, in the lower halves.
HWY_INLINE Phase Multiply31(Phase a, Phase b) {
  return hn::ShiftRight<31>(MultiplyLow(a, b));
}

HWY_INLINE Phase Constant(int64_t value) {
  return hn::Set(Phases(), static_cast<uint64_t>(value));
}

// CosSinOf of each lane.
HWY_INLINE void StoreCosSin(Phase phase, float* cos, float* sin) {
  const Phases d;
  const Doubles dd;
  const hn::Rebind<float, Doubles> df;
  const hn::Rebind<int32_t, Doubles> di;
  const Phase turn = hn::ShiftRight<32>(phase);
  const Phase quadrant =
      hn::ShiftRight<62>(hn::Add(phase, Constant(int64_t{0x20000000} << 32)));
  const Phase offset = hn::Sub(turn, hn::ShiftLeft<30>(quadrant));
  const Phase angle =
      hn::ShiftRight<29>(MultiplyLow(offset, Constant(0x6487ED51)));
  const Phase square = Multiply31(angle, angle);
  const auto horner =
      [&](std::initializer_list<int64_t> terms) KVCOMPRESS_INLINE {
        Phase sum = hn::Zero(d);
        for (const int64_t term : terms) {
          sum = Multiply31(square, hn::Add(sum, Constant(term)));
        }
        return sum;
      };
  const Phase sine_term = horner({-53, 5917, -426088, 17895697, -357913941});
  const Phase sine = hn::Add(angle, Multiply31(angle, sine_term));
  const Phase cosine = horner({-591, 53261, -2982616, 89478485, -1073741824});
  // In binary64, where both are exact; rounded once.
  const auto widen = [&](Phase lower) KVCOMPRESS_INLINE {
    return hn::PromoteTo(
        dd, hn::BitCast(di, hn::TruncateTo(hn::RebindToUnsigned<decltype(di)>(),
                                           lower)));
  };
  const Double unit = hn::Set(dd, 0x1p-31);
  const Double wide_sine = hn::Mul(widen(sine), unit);
  const Double wide_cosine =
      hn::Mul(hn::Add(widen(cosine), hn::Set(dd, 0x1p31)), unit);
  const Phase one = hn::Set(d, 1);
  const auto is = [&](Phase bits) KVCOMPRESS_INLINE {
    return hn::RebindMask(dd, hn::Ne(bits, hn::Zero(d)));
  };
  const auto odd = is(hn::And(quadrant, one));
  // The sine is negated in quadrants 1 and 2, the cosine in 2 and 3; 0 - 0 is
  // 0 as in integers.
  const auto negate_sine =
      is(hn::And(hn::Xor(quadrant, hn::ShiftRight<1>(quadrant)), one));
  const auto negate_cosine = is(hn::ShiftRight<1>(quadrant));
  const Double zero = hn::Zero(dd);
  const Double s =
      hn::IfThenElse(negate_sine, hn::Sub(zero, wide_sine), wide_sine);
  const Double c =
      hn::IfThenElse(negate_cosine, hn::Sub(zero, wide_cosine), wide_cosine);
  hn::StoreU(hn::DemoteTo(df, hn::IfThenElse(odd, s, c)), df, cos);
  hn::StoreU(hn::DemoteTo(df, hn::IfThenElse(odd, c, s)), df, sin);
}

inline void FillRotationTable(const uint64_t* increments, size_t pairs,
                              uint64_t first, size_t tokens, float* table) {
  const Phases d;
  const size_t lanes = hn::Lanes(d);
  const size_t whole = pairs - pairs % lanes;
  for (size_t pair = 0; pair < whole; pair += lanes) {
    const Phase increment = hn::LoadU(d, increments + pair);
    uint64_t start[kDoubleLanes];
    for (size_t i = 0; i < lanes; ++i) start[i] = first * increments[pair + i];
    Phase phase = hn::LoadU(d, start);
    float* out = table + pair;
    for (size_t t = 0; t < tokens; ++t, out += 2 * pairs) {
      StoreCosSin(phase, out, out + pairs);
      phase = hn::Add(phase, increment);
    }
  }
  for (size_t t = 0; whole < pairs && t < tokens; ++t) {
    float* const row = table + t * 2 * pairs;
    for (size_t pair = whole; pair < pairs; ++pair) {
      const CosSin turn = CosSinOf((first + t) * increments[pair]);
      row[pair] = turn.cos;
      row[pairs + pair] = turn.sin;
    }
  }
}

// The first channels of a vector of pairs, and the second.
template <class D>
struct Pairs {
  hn::Vec<D> x, y;

  static HWY_INLINE Pairs Load(const float* row, size_t pair,
                               RotationShape shape) {
    const D d;
    Pairs result;
    if (shape.interleaved) {
      hn::LoadInterleaved2(d, row + 2 * pair, result.x, result.y);
    } else {
      result.x = hn::LoadU(d, row + pair);
      result.y = hn::LoadU(d, row + shape.pairs + pair);
    }
    return result;
  }
  HWY_INLINE void Store(size_t pair, RotationShape shape, float* row) const {
    const D d;
    if (shape.interleaved) {
      hn::StoreInterleaved2(x, y, d, row + 2 * pair);
    } else {
      hn::StoreU(x, d, row + pair);
      hn::StoreU(y, d, row + shape.pairs + pair);
    }
  }
};

template <class D>
HWY_INLINE void RotateMatrixWith(D d, const float* table, RotationShape shape,
                                 float* values) {
  const size_t pairs = shape.pairs;
  const auto flip = shape.back ? hn::SignBit(d) : hn::Zero(d);
  for (size_t t = 0; t < shape.tokens; ++t) {
    for (size_t pair = 0; pair < pairs; pair += hn::Lanes(d)) {
      const auto cos = hn::LoadU(d, table + pair);
      const auto sin = hn::Xor(hn::LoadU(d, table + pairs + pair), flip);
      const auto [x, y] = Pairs<D>::Load(values, pair, shape);
      const Pairs<D> turned = {hn::Sub(hn::Mul(x, cos), hn::Mul(y, sin)),
                               hn::Add(hn::Mul(y, cos), hn::Mul(x, sin))};
      turned.Store(pair, shape, values);
    }
    table += 2 * pairs;
    values += 2 * pairs;
  }
}

inline void RotateMatrix(const float* table, RotationShape shape,
                         float* values) {
  if (shape.pairs % hn::MaxLanes(WideFloats()) == 0) {
    RotateMatrixWith(WideFloats(), table, shape, values);
  } else if (shape.pairs % kLanes == 0) {
    RotateMatrixWith(Floats(), table, shape, values);
  } else {
    PortableRows().rotate(table, shape, values);
  }
}

inline void SumMatrixTurnedBack(const float* turn, RotationShape shape,
                                const float* values, float* sums) {
  const Floats d;
  const size_t pairs = shape.pairs;
  if (pairs % kLanes != 0) {
    PortableRows().sum_turned_back(turn, shape, values, sums);
    return;
  }
  for (size_t pair = 0; pair < pairs; pair += kLanes) {
    const Float turn_cos = hn::LoadU(d, turn + pair);
    const Float turn_sin = hn::LoadU(d, turn + pairs + pair);
    Float cos = hn::Set(d, 1.0f);
    Float sin = hn::Zero(d);
    Float sum_x = hn::Zero(d);
    Float sum_y = hn::Zero(d);
    const float* row = values;
    for (size_t t = 0; t < shape.tokens; ++t, row += 2 * pairs) {
      const auto [x, y] = Pairs<Floats>::Load(row, pair, shape);
      sum_x = hn::Add(sum_x, hn::Add(hn::Mul(x, cos), hn::Mul(y, sin)));
      sum_y = hn::Add(sum_y, hn::Sub(hn::Mul(y, cos), hn::Mul(x, sin)));
      const Float next =
          hn::Sub(hn::Mul(cos, turn_cos), hn::Mul(sin, turn_sin));
      sin = hn::Add(hn::Mul(sin, turn_cos), hn::Mul(cos, turn_sin));
      cos = next;
    }
    hn::StoreU(sum_x, d, sums + pair);
    hn::StoreU(sum_y, d, sums + pairs + pair);
  }
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
