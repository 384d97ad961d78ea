// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/lane_sums.h"
#include "kernels/portable_types.h"
#include "kernels/rows.h"

namespace kvcompress::kernels {
namespace {

template <typename T>
uint32_t Load(const uint8_t* elements, size_t count, float* values) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    values[i] = T::Load(LoadBits<T>(elements, i));
    largest =
        std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffff);
  }
  return largest;
}

template <typename T>
uint32_t Largest(const uint8_t* elements, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const float value = T::Load(LoadBits<T>(elements, i));
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffff);
  }
  return largest;
}

template <typename T>
void Store(const float* values, size_t count, uint8_t* elements) {
  const float most = T::Load(T::kLargest);
  for (size_t i = 0; i < count; ++i) {
    StoreBits<T>(T::Round(std::clamp(values[i], -most, most)), elements, i);
  }
}

template <typename T>
void AddToLanes(const uint8_t* source, const uint8_t* decoded, size_t first,
                size_t count, LaneSums* lanes) {
  for (size_t i = first; i < count; ++i) {
    const size_t lane = i % kSumLanes;
    const double x = T::Wide(LoadBits<T>(source, i));
    const double y = T::Wide(LoadBits<T>(decoded, i));
    const double e = y - x;
    lanes->x2[lane] += x * x;
    lanes->y2[lane] += y * y;
    lanes->e2[lane] += e * e;
    lanes->abs_e[lane] += std::abs(e);
    lanes->max_abs_e = std::max(lanes->max_abs_e, std::abs(e));
    lanes->max_abs_x = std::max(lanes->max_abs_x, std::abs(x));
  }
}

void FillTable(const uint64_t* increments, size_t pairs, uint64_t first,
               size_t tokens, float* table) {
  for (size_t t = 0; t < tokens; ++t, table += 2 * pairs) {
    for (size_t pair = 0; pair < pairs; ++pair) {
      const CosSin turn = CosSinOf((first + t) * increments[pair]);
      table[pair] = turn.cos;
      table[pairs + pair] = turn.sin;
    }
  }
}

void Rotate(const float* table, RotationShape shape, float* values) {
  const size_t pairs = shape.pairs;
  const size_t stride = shape.interleaved ? 2 : 1;
  const size_t distance = shape.interleaved ? 1 : pairs;
  for (size_t t = 0; t < shape.tokens; ++t) {
    for (size_t pair = 0; pair < pairs; ++pair) {
      const float cos = table[pair];
      const float sin = shape.back ? -table[pairs + pair] : table[pairs + pair];
      float* const a = values + pair * stride;
      float* const b = a + distance;
      const float x = *a;
      const float y = *b;
      *a = x * cos - y * sin;
      *b = y * cos + x * sin;
    }
    table += 2 * pairs;
    values += 2 * pairs;
  }
}

void SumBack(const float* turn, RotationShape shape, const float* values,
             float* sums) {
  const size_t pairs = shape.pairs;
  for (size_t pair = 0; pair < pairs; ++pair) {
    const float turn_cos = turn[pair];
    const float turn_sin = turn[pairs + pair];
    const float* a = values + (shape.interleaved ? 2 * pair : pair);
    float cos = 1, sin = 0, sum_x = 0, sum_y = 0;
    for (size_t t = 0; t < shape.tokens; ++t, a += 2 * pairs) {
      const float x = a[0];
      const float y = a[shape.interleaved ? 1 : pairs];
      sum_x += x * cos + y * sin;
      sum_y += y * cos - x * sin;
      const float next = cos * turn_cos - sin * turn_sin;
      sin = sin * turn_cos + cos * turn_sin;
      cos = next;
    }
    sums[pair] = sum_x;
    sums[pairs + pair] = sum_y;
  }
}

float Sum(const float* values, MatrixShape shape, double* x, double* x2) {
  float largest = 0;
  for (size_t row = 0; row < shape.rows; ++row, values += shape.stride) {
    for (size_t column = 0; column < shape.columns; ++column) {
      const double value = values[column];
      x[column] += value;
      x2[column] += value * value;
      largest = std::max(largest, std::abs(values[column]));
    }
  }
  return largest;
}

double Squares(const float* values, size_t count) {
  double lanes[kSumLanes] = {};
  for (size_t i = 0; i < count; ++i) {
    lanes[i % kSumLanes] += static_cast<double>(values[i]) * values[i];
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void Scale(const float* factors, size_t rows, size_t columns, float* values) {
  for (size_t row = 0; row < rows; ++row, values += columns) {
    for (size_t i = 0; i < columns; ++i) values[i] *= factors[row];
  }
}

void Quantize(const float* values, size_t rows, size_t columns,
              const QuantizeStep& step, int32_t* quanta) {
  constexpr float kMax = kMaxQuantum;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < columns; ++i) {
      const float exact = (values[i] - step.means[i]) * step.inverse;
      const float magnitude = std::min(std::abs(exact), kMax);
      // What vectors do; lround differs just below a half.
      // NOLINTNEXTLINE(bugprone-incorrect-roundings)
      int32_t quantum = static_cast<int32_t>(magnitude + 0.5f);
      if (step.thresholds != nullptr) {
        const int32_t at =
            step.threshold_offsets[i] + std::min(quantum, kThresholdCount - 1);
        if (magnitude < step.thresholds[at]) --quantum;
      }
      quanta[i] = exact < 0 ? -quantum : quantum;
    }
    values += columns;
    quanta += columns;
  }
}

// Rows of quanta, or of symbols, are `distance` apart.
template <typename T>
void Dequantize(const T* quanta, size_t distance, MatrixShape shape,
                const DequantizeStep& step, float* values) {
  for (size_t row = 0; row < shape.rows; ++row) {
    const float norm = step.norms == nullptr ? 1 : step.norms[row];
    for (size_t i = 0; i < shape.columns; ++i) {
      const int32_t eighths = 8 * quanta[i] + step.means[i] * (1 << step.shift);
      values[i] = static_cast<float>(eighths) * step.unit * norm;
    }
    quanta += distance;
    values += shape.stride;
  }
}

void DequantizeQuanta(const int32_t* quanta, MatrixShape shape,
                      const DequantizeStep& step, float* values) {
  Dequantize(quanta, shape.stride, shape, step, values);
}

void DequantizeSymbolRows(const int8_t* symbols, MatrixShape shape,
                          const DequantizeStep& step, float* values) {
  Dequantize(symbols, kRansLanes, shape, step, values);
}

size_t Code(const int32_t* quanta, MatrixShape shape, const int32_t* base,
            const int32_t* most, uint16_t* codes) {
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t i = 0; i < shape.columns; ++i) {
      if (std::abs(quanta[i]) > most[i]) return row;
      codes[i] = static_cast<uint16_t>(base[i] + quanta[i]);
    }
    quanta += shape.stride;
    codes += kRansLanes;
  }
  return shape.rows;
}

size_t Widen(const int8_t* symbols, MatrixShape shape, int32_t* quanta) {
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t i = 0; i < shape.columns; ++i) {
      if (symbols[i] == -128) return row;
      quanta[i] = symbols[i];
    }
    symbols += kRansLanes;
    quanta += shape.stride;
  }
  return shape.rows;
}

// Products of numbers in units of 2^-31, rounded down.
int64_t Multiply31(int64_t a, int64_t b) { return (a * b) >> 31; }

}  // namespace

CosSin CosSinOf(uint64_t phase) {
  const uint32_t turn = static_cast<uint32_t>(phase >> 32);
  const uint32_t quadrant = (turn + 0x20000000u) >> 30;
  const int64_t offset = static_cast<int32_t>(turn - (quadrant << 30));
  const int64_t angle = (offset * 0x6487ED51) >> 29;
  const int64_t square = Multiply31(angle, angle);
  int64_t sine = Multiply31(square, -53);
  sine = Multiply31(square, 5917 + sine);
  sine = Multiply31(square, -426088 + sine);
  sine = Multiply31(square, 17895697 + sine);
  sine = Multiply31(square, -357913941 + sine);
  sine = angle + Multiply31(angle, sine);
  int64_t cosine = Multiply31(square, -591);
  cosine = Multiply31(square, 53261 + cosine);
  cosine = Multiply31(square, -2982616 + cosine);
  cosine = Multiply31(square, 89478485 + cosine);
  cosine = Multiply31(square, -1073741824 + cosine);
  cosine += int64_t{1} << 31;
  if (quadrant & 1) {
    const int64_t old = cosine;
    cosine = -sine;
    sine = old;
  }
  if (quadrant & 2) {
    cosine = -cosine;
    sine = -sine;
  }
  return {static_cast<float>(cosine) * 0x1p-31f,
          static_cast<float>(sine) * 0x1p-31f};
}

const RowKernels& PortableRows() {
  static constexpr RowKernels kKernels = {
      .load = {Load<F32>, Load<F16>, Load<BF16>, Load<F8E4M3>, Load<F8E5M2>,
               Load<F64>},
      .largest = {Largest<F32>, Largest<F16>, Largest<BF16>, Largest<F8E4M3>,
                  Largest<F8E5M2>, Largest<F64>},
      .store = {Store<F32>, Store<F16>, Store<BF16>, Store<F8E4M3>,
                Store<F8E5M2>, Store<F64>},
      .compare = {AddToLanes<F32>, AddToLanes<F16>, AddToLanes<BF16>,
                  AddToLanes<F8E4M3>, AddToLanes<F8E5M2>, AddToLanes<F64>},
      .fill_rotation = FillTable,
      .rotate = Rotate,
      .sum_turned_back = SumBack,
      .sum_columns = Sum,
      .sum_squares = Squares,
      .scale = Scale,
      .quantize = Quantize,
      .dequantize = DequantizeQuanta,
      .dequantize_symbols = DequantizeSymbolRows,
      .code = Code,
      .widen = Widen,
  };
  return kKernels;
}

void AddToLanes(DType dtype, const uint8_t* source, const uint8_t* decoded,
                size_t first, size_t count, LaneSums* lanes) {
  PortableRows().compare[static_cast<size_t>(dtype)](source, decoded, first,
                                                     count, lanes);
}

}  // namespace kvcompress::kernels
