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

template <class T, int kType>
uint32_t LoadRow(const uint8_t* elements, size_t count, float* values) {
  const Words d;
  const Word magnitude = hn::Set(d, 0x7fffffff);
  const size_t whole = count - count % kLanes;
  Word most = hn::Zero(d);
  for (size_t i = 0; i < whole; i += kLanes) {
    const Float value = T::Load(elements + i * sizeof(typename T::Bits));
    hn::StoreU(value, Floats(), values + i);
    most = hn::Max(most, hn::And(hn::BitCast(d, value), magnitude));
  }
  const uint32_t rest =
      PortableRows().load[kType](elements + whole * sizeof(typename T::Bits),
                                 count - whole, values + whole);
  return HWY_MAX(rest, hn::GetLane(hn::MaxOfLanes(d, most)));
}

template <class T, int kType>
void StoreRow(const float* values, size_t count, uint8_t* elements) {
  const Floats d;
  const Float most = T::Value(Words(), hn::Set(Words(), T::kInfinity - 1));
  const size_t whole = count - count % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    const Float value = hn::LoadU(d, values + i);
    const Float bounded = hn::Max(hn::Min(value, most), hn::Neg(most));
    T::Store(T::Round(bounded), elements + i * sizeof(typename T::Bits));
  }
  PortableRows().store[kType](values + whole, count - whole,
                              elements + whole * sizeof(typename T::Bits));
}

template <class T, DType kType>
void CompareRow(const uint8_t* source, const uint8_t* decoded, size_t count,
                DistortionSums* sums) {
  constexpr size_t kSize = sizeof(typename T::Bits);
  const Floats d;
  const Doubles dd;
  const size_t whole = count - count % kSumLanes;
  GroupSums group = GroupSums::Zero();
  Float most_x = hn::Zero(d);
  Double most_e = hn::Zero(dd);
  for (size_t row = 0; row < whole; row += kSumLanes) {
    ForEachPart(row, [&](size_t i, auto part) HWY_ATTR {
      const Float x = T::Load(source + i * kSize);
      const Float y = T::Load(decoded + i * kSize);
      most_x = hn::Max(most_x, hn::Abs(x));
      group.AddValues(part, x, y, &most_e);
    });
  }
  LaneSums lanes;
  group.AddTo(&lanes);
  lanes.max_abs_x = hn::GetLane(hn::MaxOfLanes(d, most_x));
  lanes.max_abs_e = hn::GetLane(hn::MaxOfLanes(dd, most_e));
  AddToLanes(kType, source, decoded, whole, count, &lanes);
  *sums = lanes.Total(count);
}

// Tiles of columns whose sums stay in registers.
inline float SumMatrix(const float* values, MatrixShape shape, double* x,
                       double* x2) {
  const Floats d;
  const Doubles dd;
  constexpr size_t kVectors = 2;
  constexpr size_t kTile = kVectors * kLanes;
  const size_t whole = shape.columns - shape.columns % kTile;
  Float most = hn::Zero(d);
  for (size_t column = 0; column < whole; column += kTile) {
    Double sum[kWide * kVectors];
    Double sum2[kWide * kVectors];
    for (size_t i = 0; i < kWide * kVectors; ++i) {
      sum[i] = hn::LoadU(dd, x + column + i * kDoubleLanes);
      sum2[i] = hn::LoadU(dd, x2 + column + i * kDoubleLanes);
    }
    const float* row = values + column;
    for (size_t r = 0; r < shape.rows; ++r, row += shape.stride) {
      for (size_t v = 0; v < kVectors; ++v) {
        const Float value = hn::LoadU(d, row + v * kLanes);
        most = hn::Max(most, hn::Abs(value));
        Unroll<kWide>([&](auto i) HWY_ATTR {
          const size_t at = kWide * v + i;
          const Double wide = Widen(value, i);
          sum[at] = hn::Add(sum[at], wide);
          // Exact products, so that fused or not is the same.
          sum2[at] = hn::MulAdd(wide, wide, sum2[at]);
        });
      }
    }
    for (size_t i = 0; i < kWide * kVectors; ++i) {
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
  for (size_t row = 0; row < whole; row += kSumLanes) {
    ForEachPart(row, [&](size_t i, auto part) HWY_ATTR {
      const Float value = hn::LoadU(Floats(), values + i);
      Unroll<kWide>([&](auto wide) HWY_ATTR {
        const Double x = Widen(value, wide);
        Double& sum = sums.part[kWide * part + wide];
        sum = hn::MulAdd(x, x, sum);
      });
    });
  }
  alignas(64) double lanes[kSumLanes] = {};
  sums.AddTo(lanes);
  for (size_t i = whole; i < count; ++i) {
    lanes[i % kSumLanes] += static_cast<double>(values[i]) * values[i];
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <bool kHasBorders>
HWY_INLINE void QuantizeTile(const float* values, size_t i,
                             const QuantizeStep& step, int32_t* quanta) {
  const Floats d;
  const Ints di;
  const Float centred =
      hn::Sub(hn::LoadU(d, values + i), hn::LoadU(d, step.means + i));
  const Float exact = hn::Mul(centred, hn::Set(d, step.inverse));
  const Float magnitude = hn::Min(hn::Abs(exact), hn::Set(d, kMostQuantum));
  auto quantum = hn::ConvertTo(di, hn::Add(magnitude, hn::Set(d, 0.5f)));
  if constexpr (kHasBorders) {
    const auto at = hn::Add(hn::LoadU(di, step.border + i),
                            hn::Min(quantum, hn::Set(di, kBorders - 1)));
    const auto lower = hn::Lt(magnitude, hn::GatherIndex(d, step.borders, at));
    // A mask is -1.
    quantum = hn::Add(quantum, hn::VecFromMask(di, hn::RebindMask(di, lower)));
  }
  const auto negative = hn::RebindMask(di, hn::Lt(exact, hn::Zero(d)));
  hn::StoreU(hn::IfThenElse(negative, hn::Neg(quantum), quantum), di,
             quanta + i);
}

// Columns that fill no vector make a matrix one the portable kernels'.
inline void QuantizeMatrix(const float* values, size_t rows, size_t columns,
                           const QuantizeStep& step, int32_t* quanta) {
  if (columns % kLanes != 0) {
    PortableRows().quantize(values, rows, columns, step, quanta);
    return;
  }
  for (size_t row = 0; row < rows; ++row) {
    if (step.borders == nullptr) {
      for (size_t i = 0; i < columns; i += kLanes) {
        QuantizeTile<false>(values, i, step, quanta);
      }
    } else {
      for (size_t i = 0; i < columns; i += kLanes) {
        QuantizeTile<true>(values, i, step, quanta);
      }
    }
    values += columns;
    quanta += columns;
  }
}

inline void DequantizeMatrix(const int32_t* quanta, size_t rows, size_t columns,
                             const DequantizeStep& step, float* values) {
  const Floats d;
  const Ints di;
  if (columns % kLanes != 0) {
    PortableRows().dequantize(quanta, rows, columns, step, values);
    return;
  }
  const Float unit = hn::Set(d, step.unit);
  for (size_t row = 0; row < rows; ++row) {
    const Float norm =
        hn::Set(d, step.norms == nullptr ? 1.0f : step.norms[row]);
    for (size_t i = 0; i < columns; i += kLanes) {
      const auto mean =
          hn::ShiftLeftSame(hn::LoadU(di, step.means + i), step.shift);
      const auto eighths =
          hn::Add(hn::ShiftLeft<3>(hn::LoadU(di, quanta + i)), mean);
      hn::StoreU(hn::Mul(hn::Mul(hn::ConvertTo(d, eighths), unit), norm), d,
                 values + i);
    }
    quanta += columns;
    values += columns;
  }
}

inline size_t CodeMatrix(const int32_t* quanta, MatrixShape shape,
                         const int32_t* base, const int32_t* most,
                         uint16_t* codes) {
  const Ints d;
  if (shape.columns % kLanes != 0) {
    return PortableRows().code(quanta, shape, base, most, codes);
  }
  for (size_t row = 0; row < shape.rows; ++row) {
    auto room = hn::Zero(d);
    for (size_t i = 0; i < shape.columns; i += kLanes) {
      const auto quantum = hn::LoadU(d, quanta + i);
      const auto code = hn::Add(quantum, hn::LoadU(d, base + i));
      hn::StoreU(hn::TruncateTo(Shorts(), hn::BitCast(Words(), code)), Shorts(),
                 codes + i);
      room = hn::Min(room, hn::Sub(hn::LoadU(d, most + i), hn::Abs(quantum)));
    }
    if (!hn::AllTrue(d, hn::Eq(room, hn::Zero(d)))) return row;
    quanta += shape.stride;
    codes += kRansLanes;
  }
  return shape.rows;
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
