// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The arithmetic of kernels/joint.h in vectors, for the target being compiled.

#include <hwy/highway.h>

#include <cstring>

#include "kernels/joint.h"
#include "kernels/lanes.h"

#if defined(KVCOMPRESS_KERNELS_HIGHWAY_JOINT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef KVCOMPRESS_KERNELS_HIGHWAY_JOINT_INL_H_
#undef KVCOMPRESS_KERNELS_HIGHWAY_JOINT_INL_H_
#else
#define KVCOMPRESS_KERNELS_HIGHWAY_JOINT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcompress::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void NarrowMatrix(const int32_t* levels, size_t rows, size_t columns,
                         size_t padded, int16_t* narrow, int32_t* totals) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<int16_t, decltype(d)> d16;
  const size_t lanes = hn::Lanes(d);
  const size_t whole = columns - columns % lanes;
  for (size_t r = 0; r < rows; ++r) {
    auto sum = hn::Zero(d);
    for (size_t i = 0; i < whole; i += lanes) {
      const auto level = hn::LoadU(d, levels + i);
      sum = hn::Add(sum, hn::Abs(level));
      hn::StoreU(hn::DemoteTo(d16, level), d16, narrow + i);
    }
    int32_t rest = 0;
    PortableJoint().narrow(levels + whole, 1, columns - whole, padded,
                           narrow + whole, &rest);
    totals[r] = rest + hn::GetLane(hn::SumOfLanes(d, sum));
    levels += columns;
    narrow += padded;
  }
}

inline void FinishMatrix(const int32_t* sums, size_t stride, size_t rows,
                         size_t columns, const FinishStep& step,
                         float* values) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  if (columns % lanes != 0) {
    PortableJoint().finish(sums, stride, rows, columns, step, values);
    return;
  }
  for (size_t r = 0; r < rows; ++r) {
    const auto unit = hn::Set(d, step.units[r]);
    const auto norm = hn::Set(d, step.norms == nullptr ? 1.0f : step.norms[r]);
    for (size_t i = 0; i < columns; i += lanes) {
      const auto sum = hn::ConvertTo(d, hn::LoadU(di, sums + i));
      const auto value =
          hn::Add(hn::Mul(sum, unit), hn::LoadU(d, step.means + i));
      hn::StoreU(hn::Mul(value, norm), d, values + i);
    }
    sums += stride;
    values += columns;
  }
}

inline void QuantizeMatrixParts(const float* values, size_t rows,
                                size_t columns, const float* means,
                                float inverse, size_t padded, int16_t* parts,
                                float* squares) {
  const hn::CappedTag<float, kSquareLanes> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int16_t, decltype(d)> d16;
  constexpr size_t kMaxVectors = kSquareLanes / 4;
  const size_t lanes = hn::Lanes(d);
  if (columns % kSquareLanes != 0) {
    PortableJoint().quantize_parts(values, rows, columns, means, inverse,
                                   padded, parts, squares);
    return;
  }
  for (size_t r = 0; r < rows; ++r) {
    hn::Vec<decltype(d)> sums[kMaxVectors];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (size_t i = 0; i < columns; i += kSquareLanes) {
      for (size_t v = 0; v * lanes < kSquareLanes; ++v) {
        const size_t at = i + v * lanes;
        const auto exact = hn::Mul(
            hn::Sub(hn::LoadU(d, values + at), hn::LoadU(d, means + at)),
            hn::Set(d, inverse));
        const auto bounded = hn::Min(hn::Abs(exact), hn::Set(d, kMaxQuantum));
        const auto whole =
            hn::ConvertTo(di, hn::Add(bounded, hn::Set(d, 0.5f)));
        const auto magnitude = hn::ConvertTo(d, whole);
        sums[v] = hn::Add(sums[v], hn::Mul(magnitude, magnitude));
        const auto part = hn::Min(whole, hn::Set(di, 32767));
        const auto negative = hn::RebindMask(di, hn::Lt(exact, hn::Zero(d)));
        hn::StoreU(
            hn::DemoteTo(d16, hn::IfThenElse(negative, hn::Neg(part), part)),
            d16, parts + at);
      }
    }
    float all[kSquareLanes];
    for (size_t v = 0; v * lanes < kSquareLanes; ++v) {
      hn::StoreU(sums[v], d, all + v * lanes);
    }
    float sum = 0;
    for (const float lane : all) sum += lane;
    squares[r] += sum;
    values += columns;
    parts += padded;
  }
}

inline void PairFloatRows(const float* first, const float* second,
                          size_t columns, const float* means, float scale,
                          int16_t* pairs) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  const size_t whole = second == nullptr ? 0 : columns - columns % lanes;
  const auto round = [&](const float* row, size_t i) KVCOMPRESS_INLINE {
    return hn::NearestInt(
        hn::Mul(hn::Sub(hn::LoadU(d, row + i), hn::LoadU(d, means + i)),
                hn::Set(d, scale)));
  };
  for (size_t i = 0; i < whole; i += lanes) {
    const auto low = hn::And(round(first, i), hn::Set(di, 0xffff));
    const auto pair = hn::Or(low, hn::ShiftLeft<16>(round(second, i)));
    hn::StoreU(hn::BitCast(hn::Repartition<int16_t, decltype(di)>(), pair),
               hn::Repartition<int16_t, decltype(di)>(), pairs + 2 * i);
  }
  PortableJoint().pair_rows(
      first + whole, second == nullptr ? nullptr : second + whole,
      columns - whole, means + whole, scale, pairs + 2 * whole);
}

// kRows rows from `row` on.
template <size_t kRows>
HWY_INLINE void UpdateRows(const SymmetricUpdate& update, RowsShape shape,
                           size_t row, float* matrix, float* product) {
  const hn::CappedTag<float, kSymmetricColumns> d;
  using Vector = hn::Vec<decltype(d)>;
  Vector v[kRows];
  Vector w[kRows];
  Vector u[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    v[r] = hn::Set(d, update.v_of_row[row + r]);
    w[r] = hn::Set(d, update.w_of_row[row + r]);
    u[r] = hn::Set(d, update.u_of_row[row + r]);
  }
  float* const first = matrix + row * shape.stride;
  for (size_t i = 0; i < shape.columns; i += hn::Lanes(d)) {
    const Vector column_v = hn::LoadU(d, update.v + i);
    const Vector column_w = hn::LoadU(d, update.w + i);
    Vector sum = hn::LoadU(d, product + i);
    for (size_t r = 0; r < kRows; ++r) {
      float* const at = first + r * shape.stride + i;
      const Vector change =
          hn::Add(hn::Mul(v[r], column_w), hn::Mul(w[r], column_v));
      const Vector value = hn::Sub(hn::LoadU(d, at), change);
      hn::StoreU(value, d, at);
      sum = hn::Add(sum, hn::Mul(u[r], value));
    }
    hn::StoreU(sum, d, product + i);
  }
}

inline void UpdateSymmetricRows(const SymmetricUpdate& update, RowsShape shape,
                                float* matrix, float* product) {
  constexpr size_t kRows = 4;
  size_t row = 0;
  for (; row + kRows <= shape.rows; row += kRows) {
    UpdateRows<kRows>(update, shape, row, matrix, product);
  }
  for (; row < shape.rows; ++row) {
    UpdateRows<1>(update, shape, row, matrix, product);
  }
}

// kVectors vectors of columns.
template <size_t kVectors>
HWY_INLINE void ReflectColumnsOfRows(const float* v, float factor,
                                     RowsShape shape, float* matrix) {
  const hn::CappedTag<float, kSymmetricColumns> d;
  using Vector = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  Vector sums[kVectors];
  Vector odd[kVectors];
  for (size_t i = 0; i < kVectors; ++i) sums[i] = odd[i] = hn::Zero(d);
  const auto add = [&](size_t r, Vector* to) KVCOMPRESS_INLINE {
    const Vector scale = hn::Set(d, v[r]);
    for (size_t i = 0; i < kVectors; ++i) {
      const float* const from = matrix + r * shape.stride + i * lanes;
      to[i] = hn::Add(to[i], hn::Mul(scale, hn::LoadU(d, from)));
    }
  };
  size_t row = 0;
  for (; row + 2 <= shape.rows; row += 2) {
    add(row, sums);
    add(row + 1, odd);
  }
  if (row < shape.rows) add(row, sums);
  for (size_t i = 0; i < kVectors; ++i) {
    sums[i] = hn::Mul(hn::Add(sums[i], odd[i]), hn::Set(d, factor));
  }
  for (size_t r = 0; r < shape.rows; ++r, matrix += shape.stride) {
    const Vector scale = hn::Set(d, v[r]);
    for (size_t i = 0; i < kVectors; ++i) {
      float* const at = matrix + i * lanes;
      hn::StoreU(hn::Sub(hn::LoadU(d, at), hn::Mul(scale, sums[i])), d, at);
    }
  }
}

inline void ReflectFloatRows(const float* v, float factor, RowsShape shape,
                             float* matrix) {
  constexpr size_t kVectors = 2;
  const size_t lanes = hn::Lanes(hn::CappedTag<float, kSymmetricColumns>());
  size_t i = 0;
  for (; i + kVectors * lanes <= shape.columns; i += kVectors * lanes) {
    ReflectColumnsOfRows<kVectors>(v, factor, shape, matrix + i);
  }
  for (; i < shape.columns; i += lanes) {
    ReflectColumnsOfRows<1>(v, factor, shape, matrix + i);
  }
}

// kRows rows and kVectors vectors of columns, whose sums stay in registers.
template <size_t kRows, size_t kVectors>
HWY_INLINE void AddProductToTile(const FloatFactors& factors, size_t stride,
                                 float* sums) {
  const hn::CappedTag<float, kSymmetricColumns> d;
  using Vector = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  Vector tile[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      tile[r][v] = hn::LoadU(d, sums + r * stride + v * lanes);
    }
  }
  for (size_t k = 0; k < factors.inner; ++k) {
    const float* const right = factors.right + k * factors.right_stride;
    Vector columns[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      columns[v] = hn::LoadU(d, right + v * lanes);
    }
    for (size_t r = 0; r < kRows; ++r) {
      const Vector factor =
          hn::Set(d, factors.left[r * factors.left_stride + k]);
      for (size_t v = 0; v < kVectors; ++v) {
        tile[r][v] = hn::Add(tile[r][v], hn::Mul(factor, columns[v]));
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(tile[r][v], d, sums + r * stride + v * lanes);
    }
  }
}

// kVectors vectors of columns of all rows.
template <size_t kVectors>
void AddProductToColumns(FloatFactors factors, RowsShape shape, float* sums) {
  constexpr size_t kRows = 4;
  size_t row = 0;
  for (; row + kRows <= shape.rows; row += kRows) {
    AddProductToTile<kRows, kVectors>(factors, shape.stride, sums);
    factors.left += kRows * factors.left_stride;
    sums += kRows * shape.stride;
  }
  for (; row < shape.rows; ++row) {
    AddProductToTile<1, kVectors>(factors, shape.stride, sums);
    factors.left += factors.left_stride;
    sums += shape.stride;
  }
}

inline void AddProductOfFloats(const FloatFactors& factors, RowsShape shape,
                               float* sums) {
  constexpr size_t kVectors = 2;
  const size_t lanes = hn::Lanes(hn::CappedTag<float, kSymmetricColumns>());
  FloatFactors of_columns = factors;
  size_t i = 0;
  for (; i + kVectors * lanes <= shape.columns; i += kVectors * lanes) {
    of_columns.right = factors.right + i;
    AddProductToColumns<kVectors>(of_columns, shape, sums + i);
  }
  for (; i < shape.columns; i += lanes) {
    of_columns.right = factors.right + i;
    AddProductToColumns<1>(of_columns, shape, sums + i);
  }
}

inline void ScaleToUnitVector(const int32_t* integers, size_t count,
                              const UnitScale& scale, int16_t* unit) {
  ScaleIntegersToUnit(integers, count, scale, unit);
}

inline void FindEigenvaluesOf(const Tridiagonal& matrix, size_t first,
                              float low, float high, float* values) {
  BisectEigenvalues(matrix, first, low, high, values);
}

inline void FindEigenvectorsOf(const Tridiagonal& matrix, const float* values,
                               float tiny, bool begins, FactorsOfRow* memory,
                               size_t stride, float* vectors) {
  IterateEigenvectors(matrix, values, tiny, begins, memory, stride, vectors);
}

}  // namespace kvcompress::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
