// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Arithmetic of kernels/joint.h as loops that compilers turn into vectors: the
// functions of each set are these, compiled for its target. No number is added
// to its neighbour, so the width of vectors changes nothing.
//
// Eigenvalues and eigenvectors of a symmetric tridiagonal matrix are found by
// bisection and inverse iteration (J. H. Wilkinson, The Algebraic Eigenvalue
// Problem, 1965, chapter 5), many side by side.

#ifndef KVCOMPRESS_KERNELS_LANES_H_
#define KVCOMPRESS_KERNELS_LANES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/joint.h"

// Functions take the target of the one that they become part of.
#define KVCOMPRESS_PART inline __attribute__((always_inline))

namespace kvcompress::kernels {

KVCOMPRESS_PART void ScaleIntegersToUnit(const int32_t* integers, size_t count,
                                         const UnitScale& scale,
                                         int16_t* unit) {
  for (size_t i = 0; i < count; ++i) {
    const double magnitude = std::abs(static_cast<double>(integers[i]));
    const double quotient =
        (magnitude * scale.factor + scale.half) * scale.inverse + 0x1p-33;
    const int32_t whole = static_cast<int32_t>(std::min(quotient, 32767.0));
    unit[i] = static_cast<int16_t>(integers[i] < 0 ? -whole : whole);
  }
}

using EigenLanes = float[kEigenLanes];

// Halvings of the interval that has all eigenvalues: nearly to the last place
// of a binary32.
inline constexpr int kHalvings = 22;

KVCOMPRESS_PART void BisectEigenvalues(const Tridiagonal& t, size_t first,
                                       float low, float high, float* values) {
  EigenLanes lows;
  EigenLanes highs;
  EigenLanes middles;
  int wanted[kEigenLanes];  // how many are below
  for (size_t l = 0; l < kEigenLanes; ++l) {
    lows[l] = low;
    highs[l] = high;
    wanted[l] = static_cast<int>(t.size) - 1 - static_cast<int>(first + l);
  }
  const float tiny = std::max(high, -low) * 1e-12f;
  for (int step = 0; step < kHalvings; ++step) {
    EigenLanes pivots;
    int below[kEigenLanes] = {};
    for (size_t l = 0; l < kEigenLanes; ++l) {
      middles[l] = 0.5f * (lows[l] + highs[l]);
      pivots[l] = 1;
    }
    float square = 0;
    for (size_t i = 0; i < t.size; ++i) {
      const float diagonal = t.diagonal[i];
      for (size_t l = 0; l < kEigenLanes; ++l) {
        const float pivot = (diagonal - middles[l]) - square / pivots[l];
        pivots[l] = std::abs(pivot) < tiny ? -tiny : pivot;
        below[l] += pivots[l] < 0 ? 1 : 0;
      }
      square = t.off_diagonal[i] * t.off_diagonal[i];
    }
    for (size_t l = 0; l < kEigenLanes; ++l) {
      const bool is_below = below[l] > wanted[l];
      highs[l] = is_below ? middles[l] : highs[l];
      lows[l] = is_below ? lows[l] : middles[l];
    }
  }
  for (size_t l = 0; l < kEigenLanes; ++l) {
    values[l] = 0.5f * (lows[l] + highs[l]);
  }
}

// A row of T less each of the values, as L U with the larger pivots.
struct FactorsOfRow {
  EigenLanes swaps;  // 1 where the row changed places with the next
  EigenLanes factor;
  EigenLanes inverse;  // of the diagonal of U
  EigenLanes second;   // of U, right of the diagonal
  EigenLanes third;
};

KVCOMPRESS_PART void Factorize(const Tridiagonal& t, const float* values,
                               float tiny, FactorsOfRow* rows) {
  EigenLanes first;
  EigenLanes second;
  for (size_t l = 0; l < kEigenLanes; ++l) {
    first[l] = t.diagonal[0] - values[l];
    second[l] = t.off_diagonal[0];
  }
  for (size_t i = 0; i < t.size; ++i) {
    FactorsOfRow& row = rows[i];
    const float below = i + 1 < t.size ? t.off_diagonal[i] : 0;
    const float next = i + 1 < t.size ? t.diagonal[i + 1] : 0;
    const float after = i + 1 < t.size ? t.off_diagonal[i + 1] : 0;
    for (size_t l = 0; l < kEigenLanes; ++l) {
      const float diagonal = next - values[l];
      const bool swaps = std::abs(first[l]) < std::abs(below);
      const float pivot = swaps ? below : first[l];
      const float other = swaps ? first[l] : below;
      const float right = swaps ? diagonal : second[l];
      const float far = swaps ? after : 0;
      const float left_right = swaps ? second[l] : diagonal;
      const float left_far = swaps ? 0 : after;
      const float sure = std::abs(pivot) < tiny ? tiny : pivot;
      const float inverse = 1 / sure;
      row.swaps[l] = swaps ? 1.0f : 0.0f;
      row.factor[l] = other * inverse;
      row.inverse[l] = inverse;
      row.second[l] = right;
      row.third[l] = far;
      first[l] = left_right - row.factor[l] * right;
      second[l] = left_far - row.factor[l] * far;
    }
  }
}

KVCOMPRESS_PART void SolveUpper(const FactorsOfRow* rows, size_t size, float* x,
                                size_t stride) {
  EigenLanes after = {};
  EigenLanes far = {};
  for (size_t i = size; i-- > 0;) {
    const FactorsOfRow& row = rows[i];
    float* const at = x + i * stride;
    for (size_t l = 0; l < kEigenLanes; ++l) {
      const float value =
          ((at[l] - row.second[l] * after[l]) - row.third[l] * far[l]) *
          row.inverse[l];
      far[l] = after[l];
      after[l] = value;
      at[l] = value;
    }
  }
}

KVCOMPRESS_PART void SolveLower(const FactorsOfRow* rows, size_t size, float* x,
                                size_t stride) {
  for (size_t i = 0; i + 1 < size; ++i) {
    const FactorsOfRow& row = rows[i];
    float* const at = x + i * stride;
    float* const below = at + stride;
    for (size_t l = 0; l < kEigenLanes; ++l) {
      const bool swaps = row.swaps[l] != 0;
      const float pivot = swaps ? below[l] : at[l];
      const float other = swaps ? at[l] : below[l];
      at[l] = pivot;
      below[l] = other - row.factor[l] * pivot;
    }
  }
}

// Makes each column of [size, stride] one of length 1.
KVCOMPRESS_PART void MakeUnits(size_t size, size_t stride, float* x) {
  // A vector that is nearly an eigenvector may be very long.
  EigenLanes factors = {};
  for (size_t i = 0; i < size; ++i) {
    for (size_t l = 0; l < kEigenLanes; ++l) {
      factors[l] = std::max(factors[l], std::abs(x[i * stride + l]));
    }
  }
  EigenLanes squares = {};
  for (size_t l = 0; l < kEigenLanes; ++l) {
    factors[l] = 1 / std::max(factors[l], 1e-30f);
  }
  for (size_t i = 0; i < size; ++i) {
    for (size_t l = 0; l < kEigenLanes; ++l) {
      const float value = x[i * stride + l] * factors[l];
      squares[l] += value * value;
    }
  }
  for (size_t l = 0; l < kEigenLanes; ++l) {
    factors[l] /= std::sqrt(std::max(squares[l], 1e-30f));
  }
  for (size_t i = 0; i < size; ++i) {
    for (size_t l = 0; l < kEigenLanes; ++l) x[i * stride + l] *= factors[l];
  }
}

KVCOMPRESS_PART void IterateEigenvectors(const Tridiagonal& t,
                                         const float* values, float tiny,
                                         bool begins, FactorsOfRow* rows,
                                         size_t stride, float* vectors) {
  Factorize(t, values, tiny, rows);
  if (begins) {
    SolveUpper(rows, t.size, vectors, stride);
    MakeUnits(t.size, stride, vectors);
  }
  SolveLower(rows, t.size, vectors, stride);
  SolveUpper(rows, t.size, vectors, stride);
  MakeUnits(t.size, stride, vectors);
}

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_LANES_H_
