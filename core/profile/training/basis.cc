// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/basis.h"

#include <algorithm>
#include <cmath>

#include "kvcompress/error.h"
#include "transform/leading_components.h"

namespace kvcompress::profile {
namespace {

// Up to these channels, and where more than a third of the components is
// wanted, all are found as fast.
constexpr size_t kMaxDenseChannels = 4096;

}  // namespace

coding::PrincipalComponents FindComponents(absl::Span<const float> covariance,
                                           size_t size, size_t most) {
  most = std::min(most, size);
  const auto find = size > kMaxDenseChannels && 3 * most <= size
                        ? coding::FindLeadingComponents
                        : coding::FindPrincipalComponents;
  return find(covariance, size, most);
}

absl::StatusOr<std::vector<float>> FindBasis(std::vector<float> covariance,
                                             absl::Span<const float> units,
                                             size_t most, ProfileGroup* group) {
  constexpr float kOne = 0x1p15f;
  const size_t n = group->channels();
  // A tensor's spread in units.
  std::vector<float> spreads(n);
  size_t first = 0;
  for (const ProfileTensor& tensor : group->tensors) {
    double variance = 0;
    for (size_t i = first; i < first + tensor.width(); ++i) {
      variance += covariance[i * n + i];
    }
    variance /= static_cast<double>(tensor.width());
    std::fill_n(
        spreads.begin() + static_cast<ptrdiff_t>(first), tensor.width(),
        std::max(kLeastSpread, static_cast<float>(std::sqrt(variance))));
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
  for (float& value : covariance) value /= largest;
  const coding::PrincipalComponents components =
      FindComponents(covariance, n, most);
  group->components = components.values.size();
  group->scales.resize(n);
  for (size_t i = 0; i < n; ++i) {
    group->scales[i] = spreads[i] * units[i] / kOne;
  }
  group->decode.resize(group->components * n);
  for (size_t j = 0; j < group->components; ++j) {
    for (size_t i = 0; i < n; ++i) {
      const float part =
          std::round(components.vectors[i * components.stride + j] * kOne);
      group->decode[j * n + i] =
          static_cast<int16_t>(std::clamp(part, -32767.0f, 32767.0f));
    }
  }
  std::vector<float> variances = components.values;
  for (float& variance : variances) variance *= largest;
  return variances;
}

}  // namespace kvcompress::profile
