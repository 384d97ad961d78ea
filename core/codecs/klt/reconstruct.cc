// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/reconstruct.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "codecs/ecsq/format.h"
#include "codecs/ecsq/reconstruct.h"
#include "codecs/ecsq/rope.h"

namespace kvcompress::klt {
namespace {

// sums[i] = sum over c of quanta[c] * matrix[c][i]; exact for sums that fit T.
template <typename T>
void Multiply(const Matrix& matrix, absl::Span<const int32_t> quanta, T* sums) {
  const size_t n = matrix.size;
  std::fill(sums, sums + n, T{0});
  for (size_t c = 0; c < n; ++c) {
    const T quantum = quanta[c];
    if (quantum == 0) continue;
    const int16_t* const row = &matrix.rows[c * n];
    for (size_t i = 0; i < n; ++i) sums[i] += quantum * row[i];
  }
}

class Reconstructor {
 public:
  Reconstructor(const TensorHeader& header, const Geometry& geometry,
                const Block& block, const BlockContent& content,
                absl::Span<float> values)
      : header_(header),
        geometry_(geometry),
        block_(block),
        content_(content),
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
    const Matrix matrix = MakeMatrix(content_.reflectors[group]);
    const size_t first_head = group * geometry_.GroupHeads();
    const size_t heads = matrix.size / channels_;
    const float mean_unit = header_.step * 0.125f;
    std::vector<int32_t> quanta(matrix.size);
    std::vector<int32_t> sums(matrix.size);
    std::vector<int64_t> wide_sums(matrix.size);
    for (size_t t = sinks_; t < block_.tokens; ++t) {
      uint64_t total = 0;
      for (size_t h = 0; h < heads; ++h) {
        const int32_t* const row =
            &content_
                 .quanta[((first_head + h) * block_.tokens + t) * channels_];
        std::copy(row, row + channels_, &quanta[h * channels_]);
      }
      for (const int32_t quantum : quanta) total += std::abs(quantum);
      const float unit =
          header_.step * StepFactor(content_.offsets[t]) * 0x1p-14f;
      const auto put = [&](const auto& products) {
        for (size_t h = 0; h < heads; ++h) {
          float* const out = Row(first_head + h, t);
          const int32_t* const means =
              &content_.means[(first_head + h) * channels_];
          for (size_t c = 0; c < channels_; ++c) {
            const float product =
                static_cast<float>(products[h * channels_ + c]);
            out[c] = product * unit + static_cast<float>(means[c]) * mean_unit;
          }
        }
      };
      // Entries of the matrix are below 2^15.
      if (total < 1 << 16) {
        Multiply(matrix, quanta, sums.data());
        put(sums);
      } else {
        Multiply(matrix, quanta, wide_sums.data());
        put(wide_sums);
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
    const size_t pairs = channels_ / 2;
    const std::vector<ecsq::SinCos> table = ecsq::RotationTable(
        header_.rotation->ratio, pairs, block_.first_token, block_.tokens);
    for (size_t h = 0; h < block_.heads; ++h) {
      for (size_t t = sinks_; t < block_.tokens; ++t) {
        ecsq::Rotate(&table[t * pairs], header_.rotation->interleaved,
                     channels_, Row(h, t));
      }
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
  const absl::Span<float> values_;
  const size_t channels_;  // of a head
  const size_t sinks_;
};

}  // namespace

void Reconstruct(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockContent& content,
                 absl::Span<float> values) {
  Reconstructor(header, geometry, block, content, values).Run();
}

}  // namespace kvcompress::klt
