// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/metrics.h"

#include <algorithm>
#include <cmath>

namespace kvcompress {

void DistortionAccumulator::Sum::Add(double value) {
  const double sum = sum_ + value;
  compensation_ += std::abs(sum_) >= std::abs(value) ? (sum_ - sum) + value
                                                     : (value - sum) + sum_;
  sum_ = sum;
}

void DistortionAccumulator::Sum::Merge(const Sum& other) {
  Add(other.sum_);
  Add(other.compensation_);
}

void DistortionAccumulator::Add(const DistortionSums& block) {
  count_ += block.count;
  x2_.Add(block.sum_x2);
  y2_.Add(block.sum_y2);
  xy_.Add(block.sum_xy);
  e2_.Add(block.sum_e2);
  abs_e_.Add(block.sum_abs_e);
  max_abs_e_ = std::max(max_abs_e_, block.max_abs_e);
  max_abs_x_ = std::max(max_abs_x_, block.max_abs_x);
}

void DistortionAccumulator::Merge(const DistortionAccumulator& other) {
  count_ += other.count_;
  x2_.Merge(other.x2_);
  y2_.Merge(other.y2_);
  xy_.Merge(other.xy_);
  e2_.Merge(other.e2_);
  abs_e_.Merge(other.abs_e_);
  max_abs_e_ = std::max(max_abs_e_, other.max_abs_e_);
  max_abs_x_ = std::max(max_abs_x_, other.max_abs_x_);
}

Metrics DistortionAccumulator::Compute() const {
  Metrics metrics;
  metrics.elements = count_;
  if (count_ == 0) return metrics;
  const double n = static_cast<double>(count_);
  const double x2 = x2_.value();
  const double y2 = y2_.value();
  const double e2 = e2_.value();
  metrics.mse = e2 / n;
  metrics.rmse = std::sqrt(metrics.mse);
  metrics.mae = abs_e_.value() / n;
  metrics.max_error = max_abs_e_;
  if (max_abs_e_ == 0) return metrics;
  if (e2 < kLeastSquares) {
    // The squares are lost: what the largest values and errors allow at worst.
    metrics.rmse = max_abs_e_;
    metrics.psnr_db = 20 * std::log10(max_abs_x_ / max_abs_e_);
    metrics.snr_db = *metrics.psnr_db - 10 * std::log10(n);
    metrics.cosine_similarity = 0;
    return metrics;
  }
  metrics.snr_db = 10 * std::log10(x2 / e2);
  metrics.psnr_db = 20 * std::log10(max_abs_x_ / metrics.rmse);
  const double norms = std::sqrt(x2) * std::sqrt(y2);
  metrics.cosine_similarity =
      norms == 0 ? 0 : std::clamp(xy_.value() / norms, -1.0, 1.0);
  return metrics;
}

}  // namespace kvcompress
