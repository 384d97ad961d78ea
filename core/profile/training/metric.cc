// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/metric.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "profile/training/components.h"
#include "status/macros.h"

namespace kvcompress::profile {
namespace {

// The largest integer of a matrix, and the length of its rows that the
// products of encoders allow (profile/projector.h).
constexpr float kMaxInteger = 32767;
// What both sides of a symmetric matrix may differ by, next to its diagonal.
constexpr float kAsymmetry = 1e-4f;

absl::Status Invalid(const TrainingCache& source, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(source.name(), ": ", what),
                   {.reason = "INVALID_TRAINING_METRIC"});
}

// The inverse of a symmetric, positive definite matrix, by its Cholesky
// factors. False where it is not one.
bool Invert(absl::Span<const float> matrix, size_t n,
            std::vector<float>* inverse) {
  std::vector<double> lower(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = matrix[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      if (i == j && !(sum > 0)) return false;
      lower[i * n + j] = i == j ? std::sqrt(sum) : sum / lower[j * n + j];
    }
  }
  std::vector<double> column(n);
  inverse->resize(n * n);
  for (size_t c = 0; c < n; ++c) {
    for (size_t i = 0; i < n; ++i) {
      double sum = i == c ? 1 : 0;
      for (size_t k = 0; k < i; ++k) sum -= lower[i * n + k] * column[k];
      column[i] = sum / lower[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
      double sum = column[i];
      for (size_t k = i + 1; k < n; ++k) sum -= lower[k * n + i] * column[k];
      column[i] = sum / lower[i * n + i];
      (*inverse)[i * n + c] = static_cast<float>(column[i]);
    }
  }
  return std::all_of(inverse->begin(), inverse->end(),
                     [](float value) { return std::isfinite(value); });
}

bool IsSymmetric(absl::Span<const float> matrix, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const float most =
          kAsymmetry * std::max(matrix[i * n + i], matrix[j * n + j]);
      if (!(std::abs(matrix[i * n + j] - matrix[j * n + i]) <= most)) {
        return false;
      }
    }
  }
  return true;
}

// Rows [count, channels] times the blocks of a symmetric matrix, in place.
void MultiplyRows(absl::Span<const MetricBlock> metric, bool inverse,
                  size_t count, size_t channels, float* rows) {
  std::vector<float> product;
  size_t first = 0;
  for (const MetricBlock& block : metric) {
    const std::vector<float>& matrix = inverse ? block.inverse : block.matrix;
    for (size_t r = 0; r < count; ++r) {
      float* const row = rows + r * channels + first;
      product.assign(block.width, 0);
      for (size_t i = 0; i < block.width; ++i) {
        const float factor = row[i];
        const float* const from = &matrix[i * block.width];
        for (size_t j = 0; j < block.width; ++j) product[j] += factor * from[j];
      }
      std::copy(product.begin(), product.end(), row);
    }
    first += block.width;
  }
}

int16_t ToInteger(float value) {
  return static_cast<int16_t>(
      std::clamp(std::round(value), -kMaxInteger, kMaxInteger));
}

// Sets `decode` and `scales` from real components [components, channels].
void SetDecode(const std::vector<float>& rows, ProfileGroup* group) {
  const size_t n = group->channels();
  group->scales.assign(n, 0);
  for (size_t k = 0; k < rows.size(); ++k) {
    group->scales[k % n] =
        std::max(group->scales[k % n], std::abs(rows[k]) / kMaxInteger);
  }
  for (float& scale : group->scales) scale = std::max(scale, 0x1p-60f);
  group->decode.resize(rows.size());
  for (size_t k = 0; k < rows.size(); ++k) {
    group->decode[k] = ToInteger(rows[k] / group->scales[k % n]);
  }
}

// The same of `encode`, whose rows must not be longer than kMaxInteger.
void SetEncode(const std::vector<float>& rows, ProfileGroup* group) {
  const size_t n = group->channels();
  std::vector<float>& scales = group->encode_scales;
  scales.assign(n, 0);
  for (size_t k = 0; k < rows.size(); ++k) scales[k % n] += rows[k] * rows[k];
  for (float& scale : scales) scale = std::max(std::sqrt(scale), 0x1p-40f);
  double longest = 0;
  for (size_t row = 0; row < rows.size(); row += n) {
    double squares = 0;
    for (size_t i = 0; i < n; ++i) {
      const double part = rows[row + i] / scales[i];
      squares += part * part;
    }
    longest = std::max(longest, squares);
  }
  const auto unit = static_cast<float>(std::sqrt(longest) / kMaxInteger);
  for (float& scale : scales) scale *= unit;
  group->encode.resize(rows.size());
  for (size_t k = 0; k < rows.size(); ++k) {
    group->encode[k] = ToInteger(rows[k] / scales[k % n]);
  }
}

}  // namespace

absl::StatusOr<std::vector<MetricBlock>> ReadMetric(
    TrainingCache* source, absl::Span<const ProfileTensor> tensors) {
  std::vector<MetricBlock> blocks;
  const std::vector<TensorSpec>& specs = source->tensors();
  for (const ProfileTensor& tensor : tensors) {
    const auto found =
        std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& spec) {
          return spec.role == tensor.role && spec.layer == tensor.layer;
        });
    const std::string place =
        absl::StrCat(tensor.role == TensorRole::kKey ? "keys" : "values",
                     " of layer ", tensor.layer);
    if (found == specs.end()) {
      return Invalid(*source, absl::StrCat("it has no matrix for the ", place));
    }
    const uint64_t width = tensor.width();
    if (found->dtype != DType::kF32 ||
        found->shape != std::vector<uint64_t>{width, width}) {
      return Invalid(*source,
                     absl::StrCat(QuoteName(found->name), " for the ", place,
                                  " is not F32 [", width, ", ", width, "]"));
    }
    KVC_ASSIGN_OR_RETURN(
        const std::string bytes,
        source->Read(static_cast<size_t>(found - specs.begin())));
    MetricBlock block{.width = width};
    block.matrix.resize(width * width);
    std::memcpy(block.matrix.data(), bytes.data(), bytes.size());
    if (!IsSymmetric(block.matrix, width) ||
        !Invert(block.matrix, width, &block.inverse)) {
      return Invalid(*source, absl::StrCat(QuoteName(found->name),
                                           " is not symmetric and positive "
                                           "definite"));
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

absl::StatusOr<std::vector<float>> FindMetricBasis(
    std::vector<float> covariance, absl::Span<const float> units,
    absl::Span<const MetricBlock> metric, size_t most, ProfileGroup* group) {
  const size_t n = group->channels();
  const auto transpose = [&] {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) {
        std::swap(covariance[i * n + j], covariance[j * n + i]);
      }
    }
  };
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) covariance[i * n + j] *= units[i] * units[j];
  }
  MultiplyRows(metric, /*inverse=*/false, n, n, covariance.data());
  transpose();
  MultiplyRows(metric, /*inverse=*/false, n, n, covariance.data());
  float largest = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      const float mean = (covariance[i * n + j] + covariance[j * n + i]) / 2;
      covariance[i * n + j] = mean;
      covariance[j * n + i] = mean;
    }
    covariance[i * n + i] = std::max(covariance[i * n + i], 0.0f);
    largest = std::max(largest, covariance[i * n + i]);
  }
  if (!(largest > 0) || !std::isfinite(largest)) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     "all tokens of the caches are the same",
                     {.reason = "INVALID_TRAINING_CACHE"});
  }
  Components components =
      FindAllComponents(std::move(covariance), n, most, /*tiny=*/false);
  group->components = components.values.size();
  std::vector<float> decode = components.rows;
  MultiplyRows(metric, /*inverse=*/true, group->components, n, decode.data());
  SetDecode(decode, group);
  MultiplyRows(metric, /*inverse=*/false, group->components, n,
               components.rows.data());
  SetEncode(components.rows, group);
  return components.values;
}

}  // namespace kvcompress::profile
