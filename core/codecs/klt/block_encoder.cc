// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/block_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "codecs/ecsq/block_encoder.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/lists.h"
#include "codecs/ecsq/reconstruct.h"
#include "codecs/ecsq/tables.h"
#include "codecs/klt/block_writer.h"
#include "codecs/klt/reconstruct.h"
#include "codecs/klt/rounding.h"
#include "kernels/elements.h"
#include "kernels/kernels.h"

namespace kvcompress::klt {
namespace {

// Tokens that are finer than this, in quarter octaves, are not typical: they
// are rounded to the nearest, and left out of statistics.
constexpr int kFine = 12;
// Coefficients are found from integers in these parts of a step, of many tokens
// together.
constexpr float kParts = 64;
constexpr size_t kTokens = 64;
// Squared length of a token's integers up to which its sums fit 32 bits, as the
// rows of a matrix are hardly longer than 2^14.
constexpr double kNarrowSquares = 0x1p33;

}  // namespace

BlockEncoder::BlockEncoder(const TensorHeader& header, const Geometry& geometry,
                           const Block& block, float patch_error, DType dtype,
                           BlockInput input, absl::Span<const int8_t> offsets)
    : header_(header),
      geometry_(geometry),
      block_(block),
      patch_error_(patch_error),
      dtype_(dtype),
      source_(std::move(input.source)),
      channels_(geometry.channels()),
      all_channels_(geometry.Channels(block)),
      sinks_(header.Sinks(block)),
      values_(std::move(input.values)) {
  content_.offsets.assign(offsets.begin(), offsets.end());
  Normalize();
  MeasureChannels();
  EncodeSinks();
}

bool BlockEncoder::IsOutside(size_t token) const {
  return token < sinks_ || content_.offsets[token] >= kFine;
}

void BlockEncoder::Normalize() {
  for (const float value : values_) {
    largest_ = std::max<double>(largest_, std::abs(value));
  }
  if (!header_.norms) return;
  largest_ = 0;
  for (size_t row = 0; row < block_.heads * block_.tokens; ++row) {
    const absl::Span<float> token =
        absl::MakeSpan(values_).subspan(row * channels_, channels_);
    const uint16_t code = ecsq::NormCode(token);
    const float norm = ecsq::NormOf(code);
    content_.norms.push_back(code);
    norm_square_sum_ += static_cast<double>(norm) * norm;
    for (float& value : token) {
      value = code == 0 ? 0 : value / norm;
      largest_ = std::max<double>(largest_, std::abs(value));
    }
  }
}

template <typename Visit>
void BlockEncoder::ForEachRunInside(Visit visit) const {
  for (size_t t = 0; t < block_.tokens;) {
    size_t end = t;
    while (end < block_.tokens && !IsOutside(end)) ++end;
    if (end > t) visit(t, end);
    t = end + 1;
  }
}

void BlockEncoder::MeasureChannels() {
  means_.resize(all_channels_);
  std::vector<double> squares(all_channels_);
  uint64_t count = 0;
  ForEachRunInside([&](size_t begin, size_t end) {
    count += end - begin;
    for (size_t h = 0; h < block_.heads; ++h) {
      const size_t channel = h * channels_;
      kernels::Active().rows.sum_columns(
          &values_[PositionOf(channel, begin)],
          {.rows = end - begin, .columns = channels_, .stride = channels_},
          &means_[channel], &squares[channel]);
    }
  });
  if (count == 0) return;
  for (size_t channel = 0; channel < all_channels_; ++channel) {
    double& mean = means_[channel];
    mean /= static_cast<double>(count);
    // Below 0 only by rounding.
    square_sum_ += std::max(
        0.0, squares[channel] - static_cast<double>(count) * mean * mean);
  }
  square_count_ = count * all_channels_;
}

void BlockEncoder::CopyToken(size_t group, size_t token, float* x) const {
  const size_t first = geometry_.GroupFirst(group);
  for (size_t i = 0; i < geometry_.GroupSize(block_, group); i += channels_) {
    std::copy_n(&values_[PositionOf(first + i, token)], channels_, x + i);
  }
}

void BlockEncoder::AddTo(size_t group, Covariance* covariance) const {
  const size_t first = geometry_.GroupFirst(group);
  const size_t size = geometry_.GroupSize(block_, group);
  std::vector<float> samples;
  samples.reserve(block_.tokens * size);
  std::vector<float> x(size);
  for (size_t t = 0; t < block_.tokens; ++t) {
    if (IsOutside(t)) continue;
    CopyToken(group, t, x.data());
    for (size_t i = 0; i < size; ++i) {
      samples.push_back(static_cast<float>(x[i] - means_[first + i]));
    }
  }
  covariance->Add(samples);
}

void BlockEncoder::SetMeans() {
  content_.means.resize(all_channels_);
  const double unit = static_cast<double>(header_.step) / 8;
  for (size_t channel = 0; channel < all_channels_; ++channel) {
    content_.means[channel] = static_cast<int32_t>(std::clamp<double>(
        std::round(means_[channel] / unit), -ecsq::kMaxMean, ecsq::kMaxMean));
  }
}

void BlockEncoder::Transform(size_t group, const Matrix& matrix,
                             const Matrix& transposed, float* coefficients,
                             double* variances) const {
  const size_t first = geometry_.GroupFirst(group);
  const size_t n = matrix.size();
  const float mean_unit = header_.step * 0.125f;
  const float inverse_step = 1 / header_.step;
  std::vector<float> means(n);
  for (size_t i = 0; i < n; ++i) {
    means[i] = static_cast<float>(content_.means[first + i]) * mean_unit;
  }
  std::vector<float> x(n);
  std::vector<int32_t> whole(n);  // in parts of a step
  std::vector<int16_t> narrow(kTokens * matrix.PaddedSize());
  std::vector<int32_t> sums(kTokens * n);
  for (size_t begin = sinks_; begin < block_.tokens; begin += kTokens) {
    const size_t count = std::min(kTokens, block_.tokens - begin);
    bool fits[kTokens];
    for (size_t t = 0; t < count; ++t) {
      int16_t* const out = &narrow[t * matrix.PaddedSize()];
      for (size_t i = 0; i < n; i += channels_) {
        kernels::Active().rows.quantize(
            &values_[PositionOf(first + i, begin + t)], 1, channels_,
            {.inverse = inverse_step * kParts, .means = &means[i]}, &whole[i]);
      }
      int32_t largest = 0;
      for (size_t i = 0; i < n; ++i) {
        largest = std::max(largest, std::abs(whole[i]));
        out[i] = static_cast<int16_t>(whole[i]);
        x[i] = static_cast<float>(whole[i]);
      }
      fits[t] = largest <= 32767 && kernels::Active().rows.sum_squares(
                                        x.data(), n) < kNarrowSquares;
    }
    kernels::Active().multiply(
        narrow.data(), transposed.pairs(),
        {.rows = count, .inner = matrix.PaddedSize(), .columns = n},
        sums.data());
    for (size_t t = 0; t < count; ++t) {
      float* const out = coefficients + (begin + t) * n;
      for (size_t c = 0; c < n; ++c) {
        out[c] = static_cast<float>(sums[t * n + c]) * (0x1p-14f / kParts);
      }
      if (fits[t]) continue;
      CopyToken(group, begin + t, x.data());
      for (size_t i = 0; i < n; ++i) x[i] = (x[i] - means[i]) * inverse_step;
      for (size_t c = 0; c < n; ++c) {
        double sum = 0;
        for (size_t i = 0; i < n; ++i) {
          sum += static_cast<double>(x[i]) * matrix.at(c, i);
        }
        out[c] = static_cast<float>(sum * 0x1p-14);
      }
    }
  }
  std::vector<double> sums_of_columns(n);
  ForEachRunInside([&](size_t begin, size_t end) {
    kernels::Active().rows.sum_columns(
        coefficients + begin * n,
        {.rows = end - begin, .columns = n, .stride = n},
        sums_of_columns.data(), variances + first);
  });
}

void BlockEncoder::Quantize(const Bases& bases, uint8_t* decoded) {
  content_.levels.assign(values_.size(), 0);
  // In steps, as levels; and the variance of each direction.
  std::vector<float> coefficients(values_.size());
  std::vector<double> variances(all_channels_);
  content_.classes.resize(all_channels_);
  SetMeans();
  for (size_t group = 0; group < bases.matrices.size(); ++group) {
    Transform(group, bases.matrices[group], bases.transposed[group],
              &coefficients[geometry_.GroupBegin(block_, group)],
              variances.data());
  }
  const double scale = square_count_ == 0
                           ? 0
                           : static_cast<double>(all_channels_) /
                                 static_cast<double>(square_count_);
  for (size_t i = 0; i < all_channels_; ++i) {
    content_.classes[i] =
        static_cast<uint8_t>(ecsq::ClassOf(variances[i] * scale));
  }
  for (size_t group = 0; group < bases.matrices.size(); ++group) {
    const size_t begin = geometry_.GroupBegin(block_, group);
    const size_t size = geometry_.GroupSize(block_, group);
    const RoundingInput input = {
        .coefficients = absl::MakeConstSpan(coefficients)
                            .subspan(begin, size * block_.tokens),
        .offsets = content_.offsets,
        .first_token = sinks_,
        .fine = kFine};
    const absl::Span<uint8_t> classes =
        absl::MakeSpan(content_.classes)
            .subspan(geometry_.GroupFirst(group), size);
    int32_t* const levels = &content_.levels[begin];
    if (header_.trellis) {
      RoundByTrellis(input, classes, levels);
    } else {
      Round(input, classes, levels);
    }
    ChooseClasses(input, header_.trellis, levels, classes);
  }
  std::vector<float> values(values_.size());
  Reconstruct(header_, geometry_, block_, content_, bases.matrices,
              absl::MakeSpan(values));
  StoreElements(dtype_, values, decoded);
  patches_.clear();
  if (patch_error_ > 0 &&
      CompareElements(dtype_, source_.data(), decoded, values.size())
              .max_abs_e > patch_error_) {
    patches_ = ecsq::Patch(dtype_, source_.data(), patch_error_, values.size(),
                           decoded);
  }
}

bool BlockEncoder::Write(const Bases& bases, bool same_bases,
                         std::string* payload) const {
  return WriteBlock(header_, geometry_, block_, content_,
                    same_bases ? absl::Span<const Reflectors>()
                               : absl::MakeConstSpan(bases.reflectors),
                    patches_, payload);
}

void BlockEncoder::EncodeSinks() {
  std::vector<float> token(channels_);
  for (size_t h = 0; h < block_.heads; ++h) {
    for (size_t t = 0; t < sinks_; ++t) {
      const size_t row = h * block_.tokens + t;
      LoadElements(dtype_, source_.data() + row * channels_ * DTypeSize(dtype_),
                   absl::MakeSpan(token));
      const uint16_t scale = ecsq::Int8Scale::For(token);
      content_.sink_scales.push_back(scale);
      for (const float value : token) {
        content_.sink_codes.push_back(ecsq::Int8Scale::Quantize(value, scale));
      }
    }
  }
}

}  // namespace kvcompress::klt
