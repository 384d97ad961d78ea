// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/joint.h"
#include "kernels/lanes.h"
#include "kernels/rows.h"

namespace kvcompress::kernels {
namespace {

void Narrow(const int32_t* levels, size_t rows, size_t columns, size_t padded,
            int16_t* narrow, int32_t* totals) {
  for (size_t r = 0; r < rows; ++r) {
    totals[r] = 0;
    for (size_t i = 0; i < columns; ++i) {
      totals[r] += std::abs(levels[i]);
      narrow[i] = static_cast<int16_t>(std::clamp(levels[i], -32768, 32767));
    }
    levels += columns;
    narrow += padded;
  }
}

void Finish(const int32_t* sums, size_t stride, size_t rows, size_t columns,
            const FinishStep& step, float* values) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < columns; ++i) {
      const float value =
          static_cast<float>(sums[i]) * step.units[r] + step.means[i];
      values[i] = step.norms == nullptr ? value : value * step.norms[r];
    }
    sums += stride;
    values += columns;
  }
}

void Parts(const float* values, size_t rows, size_t columns, const float* means,
           float inverse, size_t padded, int16_t* parts, float* squares) {
  for (size_t r = 0; r < rows; ++r) {
    float sums[kSquareLanes] = {};
    for (size_t i = 0; i < columns; ++i) {
      const float exact = (values[i] - means[i]) * inverse;
      const float magnitude =
          std::floor(std::min<float>(std::abs(exact), kMaxQuantum) + 0.5f);
      sums[i % kSquareLanes] += magnitude * magnitude;
      const float part = std::min(magnitude, 32767.0f);
      parts[i] = static_cast<int16_t>(exact < 0 ? -part : part);
    }
    float sum = 0;
    for (const float lane : sums) sum += lane;
    squares[r] += sum;
    values += columns;
    parts += padded;
  }
}

void Pair(const float* first, const float* second, size_t columns,
          const float* means, float scale, int16_t* pairs) {
  for (size_t i = 0; i < columns; ++i) {
    pairs[2 * i] =
        static_cast<int16_t>(std::nearbyint((first[i] - means[i]) * scale));
    pairs[2 * i + 1] = second == nullptr ? int16_t{0}
                                         : static_cast<int16_t>(std::nearbyint(
                                               (second[i] - means[i]) * scale));
  }
}

void Update(const SymmetricUpdate& update, RowsShape shape, float* matrix,
            float* product) {
  for (size_t r = 0; r < shape.rows; ++r, matrix += shape.stride) {
    for (size_t i = 0; i < shape.columns; ++i) {
      matrix[i] -=
          update.v_of_row[r] * update.w[i] + update.w_of_row[r] * update.v[i];
      product[i] += update.u_of_row[r] * matrix[i];
    }
  }
}

void Reflect(const float* v, float factor, RowsShape shape, float* matrix) {
  for (size_t i = 0; i < shape.columns; ++i) {
    float sums[2] = {};
    for (size_t r = 0; r < shape.rows; ++r) {
      sums[r % 2] += v[r] * matrix[r * shape.stride + i];
    }
    const float sum = (sums[0] + sums[1]) * factor;
    for (size_t r = 0; r < shape.rows; ++r) {
      matrix[r * shape.stride + i] -= v[r] * sum;
    }
  }
}

void AddProduct(const FloatFactors& factors, RowsShape shape, float* sums) {
  for (size_t r = 0; r < shape.rows; ++r) {
    for (size_t k = 0; k < factors.inner; ++k) {
      const float factor = factors.left[r * factors.left_stride + k];
      const float* const row = factors.right + k * factors.right_stride;
      for (size_t i = 0; i < shape.columns; ++i) {
        sums[r * shape.stride + i] += factor * row[i];
      }
    }
  }
}

void Restore(const int16_t* strip, const SparseToken* tokens, size_t count,
             const StripFinish& finish, size_t stride, float* values) {
  for (size_t t = 0; t < count; ++t, values += stride) {
    const SparseToken& token = tokens[t];
    uint32_t sums[kStripColumns] = {};
    if (finish.more != nullptr) {
      std::copy_n(finish.more + t * finish.more_stride, kStripColumns, sums);
    }
    for (size_t k = 0; k < token.count; ++k) {
      const int16_t* const row = strip + token.rows[k] * kStripColumns;
      for (size_t i = 0; i < kStripColumns; ++i) {
        sums[i] += static_cast<uint32_t>(token.factors[k] * row[i]);
      }
    }
    for (size_t i = 0; i < kStripColumns; ++i) {
      const auto sum = static_cast<float>(static_cast<int32_t>(sums[i]));
      values[i] = sum * (token.unit * finish.scales[i]) + finish.means[i];
    }
  }
}

}  // namespace

const JointKernels& PortableJoint() {
  static constexpr JointKernels kKernels = {
      .narrow = Narrow,
      .finish = Finish,
      .quantize_parts = Parts,
      .pair_rows = Pair,
      .update_symmetric = Update,
      .reflect_rows = Reflect,
      .add_float_product = AddProduct,
      .scale_to_unit = ScaleIntegersToUnit,
      .restore_strip = Restore,
      .find_eigenvalues = BisectEigenvalues,
      .find_eigenvectors = IterateEigenvectors};
  return kKernels;
}

}  // namespace kvcompress::kernels
