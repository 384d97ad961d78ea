// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/basis.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kvcompress/error.h"
#include "kvcompress/metrics.h"
#include "profile/training/components.h"

namespace kvcompress::profile {
namespace {

// The most error that the usual bounds allow a tensor of such channels.
double BoundOf(double variance, absl::Span<const float> means) {
  const QualityThresholds bounds;
  double squares = 0;
  for (const float mean : means) squares += double{mean} * mean;
  const double energy = variance + squares / static_cast<double>(means.size());
  const double part = std::pow(10, -*bounds.min_snr_db / 10);
  return std::min(*bounds.max_rmse, std::sqrt(energy * part));
}

}  // namespace

absl::StatusOr<std::vector<float>> FindBasis(std::vector<float> covariance,
                                             absl::Span<const float> units,
                                             TensorUnit unit, size_t most,
                                             ProfileGroup* group) {
  constexpr float kOne = 0x1p15f;
  const size_t n = group->channels();
  // A tensor's unit in units of the covariance.
  std::vector<float> spreads(n);
  size_t first = 0;
  for (const ProfileTensor& tensor : group->tensors) {
    double variance = 0;
    for (size_t i = first; i < first + tensor.width(); ++i) {
      variance += covariance[i * n + i];
    }
    variance /= static_cast<double>(tensor.width());
    double spread = std::sqrt(variance);
    if (unit == TensorUnit::kBound) {
      const double one = units[first];
      spread =
          BoundOf(variance * one * one, absl::MakeConstSpan(group->means)
                                            .subspan(first, tensor.width())) /
          one;
    }
    std::fill_n(spreads.begin() + static_cast<ptrdiff_t>(first), tensor.width(),
                std::max(kLeastSpread, static_cast<float>(spread)));
    first += tensor.width();
  }
  float largest = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      covariance[i * n + j] /= spreads[i] * spreads[j];
    }
    covariance[i * n + i] = std::max(covariance[i * n + i], 0.0f);
    largest = std::max(largest, covariance[i * n + i]);
  }
  if (!(largest > 0)) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     "all tokens of the caches are the same",
                     {.reason = "INVALID_TRAINING_CACHE"});
  }
  const Components components =
      FindAllComponents(std::move(covariance), n, std::min(most, n),
                        /*tiny=*/unit == TensorUnit::kBound);
  group->components = components.values.size();
  group->scales.resize(n);
  for (size_t i = 0; i < n; ++i) {
    group->scales[i] = spreads[i] * units[i] / kOne;
  }
  group->decode.resize(group->components * n);
  for (size_t k = 0; k < group->decode.size(); ++k) {
    const float part = std::round(components.rows[k] * kOne);
    group->decode[k] =
        static_cast<int16_t>(std::clamp(part, -32767.0f, 32767.0f));
  }
  return components.values;
}

}  // namespace kvcompress::profile
