// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The arithmetic of kernels/rows.h in vectors, for the target being compiled.
// What is left of a row is the portable kernels'.

#include "kernels/highway/sums-inl.h"
#include "kernels/rows.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_ROWS_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_ROWS_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {

// Calls `visit` with the widest vectors that `columns` fill, or says that there
// are none: then a matrix is the portable kernels'.
template <typename Visit>
HWY_INLINE bool WithVectors(size_t columns, Visit visit) {
  if (columns % hn::MaxLanes(WideFloats()) == 0) {
    visit(WideFloats());
  } else if (columns % kLanes == 0) {
    visit(Floats());
  } else {
    return false;
  }
  return true;
}

template <class T, int kType>
uint32_t LoadRow(const uint8_t* elements, size_t count, float* values) {
  const WideFloats df;
  const hn::RebindToUnsigned<WideFloats> d;
  constexpr size_t kSize = sizeof(typename T::Bits);
  const size_t lanes = hn::Lanes(d);
  const auto magnitude = hn::Set(d, 0x7fffffff);
  const size_t whole = count - count % lanes;
  PrefetchAhead<Access::kRead>(elements, count * kSize);
  auto most = hn::Zero(d);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto value = T::template Load<WideFloats>(elements + i * kSize);
    hn::StoreU(value, df, values + i);
    most = hn::Max(most, hn::And(hn::BitCast(d, value), magnitude));
  }
  const uint32_t rest = PortableRows().load[kType](
      elements + whole * kSize, count - whole, values + whole);
  return HWY_MAX(rest, hn::GetLane(hn::MaxOfLanes(d, most)));
}

// Of whole vectors, however wide: no order matters. Bits of magnitudes are in
// the order of the magnitudes.
template <class T, int kType>
uint32_t LargestOfRow(const uint8_t* elements, size_t count) {
  using Bits = typename T::Bits;
  const hn::ScalableTag<Bits> d;
  const size_t lanes = hn::Lanes(d);
  const size_t whole = count - count % lanes;
  auto most = hn::Zero(d);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto bits = hn::LoadU(d, reinterpret_cast<const Bits*>(elements) + i);
    most = hn::Max(most, hn::And(bits, hn::Set(d, T::kMagnitude)));
  }
  alignas(64) Bits all[HWY_LANES(Bits)];
  hn::Store(most, d, all);
  const auto& largest = PortableRows().largest[kType];
  return HWY_MAX(largest(reinterpret_cast<const uint8_t*>(all), lanes),
                 largest(elements + whole * sizeof(Bits), count - whole));
}

template <class T, int kType>
void StoreRow(const float* values, size_t count, uint8_t* elements) {
  const WideFloats d;
  const hn::RebindToUnsigned<WideFloats> du;
  constexpr size_t kSize = sizeof(typename T::Bits);
  const auto most = T::Value(du, hn::Set(du, T::kInfinity - 1));
  const size_t lanes = hn::Lanes(d);
  const size_t whole = count - count % lanes;
  PrefetchAhead<Access::kWrite>(elements, count * kSize);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto value = hn::LoadU(d, values + i);
    const auto bounded = hn::Max(hn::Min(value, most), hn::Neg(most));
    T::Store(T::Round(bounded), elements + i * kSize);
  }
  PortableRows().store[kType](values + whole, count - whole,
                              elements + whole * kSize);
}

template <class T, DType kType>
void CompareRow(const uint8_t* source, const uint8_t* decoded, size_t first,
                size_t end, LaneSums* lanes) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const size_t begin =
      HWY_MIN(end, (first + kSumLanes - 1) / kSumLanes * kSumLanes);
  AddToLanes(kType, source, decoded, first, begin, lanes);
  const size_t whole = begin + (end - begin) / kLeastAtOnce * kLeastAtOnce;
  GroupSums sums = GroupSums::From(*lanes);
  HWY_ALIGN float x[kMaxAtOnce];
  HWY_ALIGN float y[kMaxAtOnce];
  const WideFloats d;
  WideFloat most_x = hn::Zero(d);
  Double most_e = hn::Zero(Doubles());
  for (size_t at = begin; at < whole; at += kMaxAtOnce) {
    const size_t part = HWY_MIN(kMaxAtOnce, whole - at);
    for (size_t i = 0; i < part; i += kWideLanes) {
      const size_t byte = (at + i) * kSize;
      const WideFloat value = T::template Load<WideFloats>(source + byte);
      hn::Store(value, d, x + i);
      hn::Store(T::template Load<WideFloats>(decoded + byte), d, y + i);
      most_x = hn::Max(most_x, hn::Abs(value));
    }
    ForEachInRow(part, [&](size_t i, auto r) KVCOMPRESS_INLINE {
      sums.AddValues(r, LoadWide(x + i), LoadWide(y + i), &most_e);
    });
  }
  sums.Store(lanes);
  lanes->max_abs_x =
      HWY_MAX(lanes->max_abs_x, hn::GetLane(hn::MaxOfLanes(d, most_x)));
  lanes->max_abs_e =
      HWY_MAX(lanes->max_abs_e, hn::GetLane(hn::MaxOfLanes(Doubles(), most_e)));
  AddToLanes(kType, source, decoded, whole, end, lanes);
}

// Tiles of columns whose sums stay in registers.
inline float SumMatrix(const float* values, MatrixShape shape, double* x,
                       double* x2) {
  const Floats d;
  const Doubles dd;
  constexpr size_t kTile = 2 * kLanes;
  constexpr size_t kRegisters = kTile / kDoubleLanes;
  const size_t whole = shape.columns - shape.columns % kTile;
  Float most = hn::Zero(d);
  for (size_t column = 0; column < whole; column += kTile) {
    Double sum[kRegisters];
    Double sum2[kRegisters];
    for (size_t i = 0; i < kRegisters; ++i) {
      sum[i] = hn::LoadU(dd, x + column + i * kDoubleLanes);
      sum2[i] = hn::LoadU(dd, x2 + column + i * kDoubleLanes);
    }
    const float* row = values + column;
    for (size_t r = 0; r < shape.rows; ++r, row += shape.stride) {
      most = hn::Max(most, hn::Abs(hn::LoadU(d, row)));
      most = hn::Max(most, hn::Abs(hn::LoadU(d, row + kLanes)));
      for (size_t i = 0; i < kRegisters; ++i) {
        const Double wide = LoadWide(row + i * kDoubleLanes);
        sum[i] = hn::Add(sum[i], wide);
        // Exact products, so that fused or not is the same.
        sum2[i] = hn::MulAdd(wide, wide, sum2[i]);
      }
    }
    for (size_t i = 0; i < kRegisters; ++i) {
      hn::StoreU(sum[i], dd, x + column + i * kDoubleLanes);
      hn::StoreU(sum2[i], dd, x2 + column + i * kDoubleLanes);
    }
  }
  shape.columns -= whole;
  const float rest =
      PortableRows().sum_columns(values + whole, shape, x + whole, x2 + whole);
  return HWY_MAX(rest, hn::GetLane(hn::MaxOfLanes(d, most)));
}

inline double SumRowSquares(const float* values, size_t count) {
  const size_t whole = count - count % kSumLanes;
  LaneSum sums = LaneSum::Zero();
  ForEachInRow(whole, [&](size_t i, auto r) KVCOMPRESS_INLINE {
    const Double x = LoadWide(values + i);
    sums.part[r] = hn::MulAdd(x, x, sums.part[r]);
  });
  alignas(64) double lanes[kSumLanes] = {};
  sums.AddTo(lanes);
  for (size_t i = whole; i < count; ++i) {
    lanes[i % kSumLanes] += static_cast<double>(values[i]) * values[i];
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

inline void ScaleMatrix(const float* factors, size_t rows, size_t columns,
                        float* values) {
  const auto scale = [&](auto d) KVCOMPRESS_INLINE {
    for (size_t row = 0; row < rows; ++row) {
      const auto factor = hn::Set(d, factors[row]);
      for (size_t i = 0; i < columns; i += hn::Lanes(d)) {
        float* const at = values + row * columns + i;
        hn::StoreU(hn::Mul(hn::LoadU(d, at), factor), d, at);
      }
    }
  };
  if (!WithVectors(columns, scale)) {
    PortableRows().scale(factors, rows, columns, values);
  }
}

template <bool kHasThresholds, class D>
HWY_INLINE void QuantizeTile(D d, const float* values, size_t i,
                             const QuantizeStep& step, int32_t* quanta) {
  const hn::RebindToSigned<D> di;
  const auto centred =
      hn::Sub(hn::LoadU(d, values + i), hn::LoadU(d, step.means + i));
  const auto exact = hn::Mul(centred, hn::Set(d, step.inverse));
  const auto magnitude = hn::Min(hn::Abs(exact), hn::Set(d, kMaxQuantum));
  auto quantum = hn::ConvertTo(di, hn::Add(magnitude, hn::Set(d, 0.5f)));
  if constexpr (kHasThresholds) {
    const auto at = hn::Add(hn::LoadU(di, step.threshold_offsets + i),
                            hn::Min(quantum, hn::Set(di, kThresholdCount - 1)));
    const auto lower =
        hn::Lt(magnitude, hn::GatherIndex(d, step.thresholds, at));
    // A mask is -1.
    quantum = hn::Add(quantum, hn::VecFromMask(di, hn::RebindMask(di, lower)));
  }
  const auto negative = hn::RebindMask(di, hn::Lt(exact, hn::Zero(d)));
  hn::StoreU(hn::IfThenElse(negative, hn::Neg(quantum), quantum), di,
             quanta + i);
}

inline void QuantizeMatrix(const float* values, size_t rows, size_t columns,
                           const QuantizeStep& step, int32_t* quanta) {
  const auto quantize = [&](auto d) KVCOMPRESS_INLINE {
    for (size_t row = 0; row < rows; ++row) {
      const float* const from = values + row * columns;
      int32_t* const to = quanta + row * columns;
      if (step.thresholds == nullptr) {
        for (size_t i = 0; i < columns; i += hn::Lanes(d)) {
          QuantizeTile<false>(d, from, i, step, to);
        }
      } else {
        for (size_t i = 0; i < columns; i += hn::Lanes(d)) {
          QuantizeTile<true>(d, from, i, step, to);
        }
      }
    }
  };
  if (!WithVectors(columns, quantize)) {
    PortableRows().quantize(values, rows, columns, step, quanta);
  }
}

// `load` returns the quanta of a vector of a row.
template <class D, typename LoadQuanta>
HWY_INLINE void DequantizeRowsWith(D d, MatrixShape shape,
                                   const DequantizeStep& step, float* values,
                                   LoadQuanta load) {
  const hn::RebindToSigned<D> di;
  const auto unit = hn::Set(d, step.unit);
  for (size_t row = 0; row < shape.rows; ++row) {
    const auto norm =
        hn::Set(d, step.norms == nullptr ? 1.0f : step.norms[row]);
    for (size_t i = 0; i < shape.columns; i += hn::Lanes(d)) {
      const auto mean =
          hn::ShiftLeftSame(hn::LoadU(di, step.means + i), step.shift);
      const auto eighths = hn::Add(hn::ShiftLeft<3>(load(row, i)), mean);
      hn::StoreU(hn::Mul(hn::Mul(hn::ConvertTo(d, eighths), unit), norm), d,
                 values + row * shape.stride + i);
    }
  }
}

inline void DequantizeMatrix(const int32_t* quanta, MatrixShape shape,
                             const DequantizeStep& step, float* values) {
  const auto dequantize = [&](auto d) KVCOMPRESS_INLINE {
    const hn::RebindToSigned<decltype(d)> di;
    DequantizeRowsWith(d, shape, step, values,
                       [&](size_t row, size_t i) KVCOMPRESS_INLINE {
                         return hn::LoadU(di, quanta + row * shape.stride + i);
                       });
  };
  if (!WithVectors(shape.columns, dequantize)) {
    PortableRows().dequantize(quanta, shape, step, values);
  }
}

inline void DequantizeSymbolMatrix(const int8_t* symbols, MatrixShape shape,
                                   const DequantizeStep& step, float* values) {
  const auto dequantize = [&](auto d) KVCOMPRESS_INLINE {
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<int8_t, decltype(d)> bytes;
    DequantizeRowsWith(
        d, shape, step, values, [&](size_t row, size_t i) KVCOMPRESS_INLINE {
          return hn::PromoteTo(
              di, hn::LoadU(bytes, symbols + row * kRansLanes + i));
        });
  };
  if (!WithVectors(shape.columns, dequantize)) {
    PortableRows().dequantize_symbols(symbols, shape, step, values);
  }
}

inline size_t CodeMatrix(const int32_t* quanta, MatrixShape shape,
                         const int32_t* base, const int32_t* most,
                         uint16_t* codes) {
  size_t done = shape.rows;
  const auto code = [&](auto df) KVCOMPRESS_INLINE {
    const hn::RebindToSigned<decltype(df)> d;
    const hn::RebindToUnsigned<decltype(df)> words;
    const hn::Rebind<uint16_t, decltype(df)> shorts;
    for (size_t row = 0; row < shape.rows; ++row) {
      auto room = hn::Zero(d);
      for (size_t i = 0; i < shape.columns; i += hn::Lanes(d)) {
        const auto quantum = hn::LoadU(d, quanta + row * shape.stride + i);
        const auto sum = hn::Add(quantum, hn::LoadU(d, base + i));
        hn::StoreU(hn::TruncateTo(shorts, hn::BitCast(words, sum)), shorts,
                   codes + row * kRansLanes + i);
        room = hn::Min(room, hn::Sub(hn::LoadU(d, most + i), hn::Abs(quantum)));
      }
      if (!hn::AllTrue(d, hn::Eq(room, hn::Zero(d)))) {
        done = row;
        return;
      }
    }
  };
  if (!WithVectors(shape.columns, code)) {
    return PortableRows().code(quanta, shape, base, most, codes);
  }
  return done;
}

inline size_t WidenMatrix(const int8_t* symbols, MatrixShape shape,
                          int32_t* quanta) {
  const Ints d;
  if (shape.columns % kLanes != 0) {
    return PortableRows().widen(symbols, shape, quanta);
  }
  for (size_t row = 0; row < shape.rows; ++row) {
    auto least = hn::Zero(d);
    for (size_t i = 0; i < shape.columns; i += kLanes) {
      const auto quantum =
          hn::PromoteTo(d, hn::LoadU(SignedBytes(), symbols + i));
      hn::StoreU(quantum, d, quanta + i);
      least = hn::Min(least, quantum);
    }
    if (!hn::AllTrue(d, hn::Gt(least, hn::Set(d, -128)))) return row;
    symbols += kRansLanes;
    quanta += shape.stride;
  }
  return shape.rows;
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
