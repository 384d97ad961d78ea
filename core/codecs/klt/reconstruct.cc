// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/reconstruct.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "codecs/ecsq/format.h"
#include "codecs/ecsq/reconstruct.h"
#include "codecs/ecsq/rope.h"
#include "kernels/kernels.h"

namespace kvcompress::klt {
namespace {

// Tokens that are multiplied together.
constexpr size_t kTokens = 64;
// Sums of products with entries of a matrix, which are below 2^15, fit 32 bits
// when the magnitudes of the levels sum to less than this.
constexpr int64_t kNarrowTotal = 1 << 15;

class Reconstructor {
 public:
  Reconstructor(const TensorHeader& header, const Geometry& geometry,
                const Block& block, const BlockContent& content,
                absl::Span<const Matrix> bases, absl::Span<float> values)
      : header_(header),
        geometry_(geometry),
        block_(block),
        content_(content),
        bases_(bases),
        values_(values),
        channels_(geometry.channels()),
        sinks_(header.Sinks(block)) {}

  void Run() {
    for (size_t group = 0; group < geometry_.Groups(block_); ++group) {
      AddGroup(group);
    }
    if (header_.norms) ScaleByNorms();
    if (header_.rotation) Rotate();
    PutSinks();
  }

 private:
  float* Row(size_t head, size_t token) const {
    return &values_[(head * block_.tokens + token) * channels_];
  }

  void AddGroup(size_t group) {
    const Matrix& matrix = bases_[group];
    const size_t n = matrix.size();
    const int32_t* const levels =
        &content_.levels[geometry_.GroupBegin(block_, group)];
    std::vector<int16_t> narrow(kTokens * matrix.PaddedSize());
    std::vector<int32_t> sums(kTokens * n);
    std::vector<int64_t> wide(n);
    for (size_t begin = sinks_; begin < block_.tokens; begin += kTokens) {
      const size_t count = std::min(kTokens, block_.tokens - begin);
      bool fits[kTokens];
      for (size_t t = 0; t < count; ++t) {
        int16_t* const out = &narrow[t * matrix.PaddedSize()];
        int64_t total = 0;
        for (size_t c = 0; c < n; ++c) {
          const int32_t level = levels[(begin + t) * n + c];
          total += std::abs(level);
          out[c] = static_cast<int16_t>(level);
        }
        fits[t] = total < kNarrowTotal;
      }
      kernels::Active().multiply(
          narrow.data(), matrix.pairs(),
          {.rows = count, .inner = matrix.PaddedSize(), .columns = n},
          sums.data());
      for (size_t t = 0; t < count; ++t) {
        if (fits[t]) {
          Put(group, begin + t, &sums[t * n]);
        } else {
          MultiplyWide(matrix, levels + (begin + t) * n, wide.data());
          Put(group, begin + t, wide.data());
        }
      }
    }
  }

  static void MultiplyWide(const Matrix& matrix, const int32_t* levels,
                           int64_t* sums) {
    std::fill(sums, sums + matrix.size(), 0);
    for (size_t c = 0; c < matrix.size(); ++c) {
      for (size_t i = 0; i < matrix.size(); ++i) {
        sums[i] += int64_t{levels[c]} * matrix.at(c, i);
      }
    }
  }

  template <typename Sum>
  void Put(size_t group, size_t token, const Sum* sums) {
    const float unit = header_.step * StepFactor(content_.offsets[token]) *
                       (header_.trellis ? 0x1p-15f : 0x1p-14f);
    const float mean_unit = header_.step * 0.125f;
    const size_t first_head = group * geometry_.GroupHeads();
    const size_t heads = bases_[group].size() / channels_;
    for (size_t h = first_head; h < first_head + heads; ++h) {
      float* const out = Row(h, token);
      const int32_t* const means = &content_.means[h * channels_];
      for (size_t c = 0; c < channels_; ++c) {
        out[c] = static_cast<float>(*sums++) * unit +
                 static_cast<float>(means[c]) * mean_unit;
      }
    }
  }

  void ScaleByNorms() {
    for (size_t row = 0; row < content_.norms.size(); ++row) {
      const float norm = ecsq::NormOf(content_.norms[row]);
      for (size_t c = 0; c < channels_; ++c) {
        values_[row * channels_ + c] *= norm;
      }
    }
  }

  void Rotate() {
    ecsq::Rotator rotator;
    for (size_t h = 0; h < block_.heads; ++h) {
      rotator.Turn(*header_.rotation, false, channels_ / 2,
                   block_.first_token + sinks_, block_.tokens - sinks_,
                   Row(h, sinks_));
    }
  }

  void PutSinks() {
    for (size_t sink = 0; sink < content_.sink_scales.size(); ++sink) {
      float* const out = Row(sink / sinks_, sink % sinks_);
      for (size_t c = 0; c < channels_; ++c) {
        out[c] = ecsq::Int8Scale::Dequantize(
            content_.sink_codes[sink * channels_ + c],
            content_.sink_scales[sink]);
      }
    }
  }

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  const BlockContent& content_;
  const absl::Span<const Matrix> bases_;
  const absl::Span<float> values_;
  const size_t channels_;  // of a head
  const size_t sinks_;
};

}  // namespace

void Reconstruct(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockContent& content,
                 absl::Span<const Matrix> bases, absl::Span<float> values) {
  Reconstructor(header, geometry, block, content, bases, values).Run();
}

}  // namespace kvcompress::klt
