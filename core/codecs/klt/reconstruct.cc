// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/reconstruct.h"

#include <algorithm>
#include <vector>

#include "kernels/elements.h"
#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "quantization/norms.h"
#include "quantization/steps.h"

namespace kvcompress::klt {
namespace {

// Tokens that are multiplied together: what they take stays in the nearest
// cache.
constexpr size_t kTokens = 32;
// Sums of products with entries of a matrix, which are below 2^15, fit 32 bits
// when the magnitudes of the levels sum to less than this.
constexpr int32_t kNarrowTotal = 1 << 15;

// kernels::NarrowLevels for rows of any length. Totals that are kNarrowTotal or
// more may be anything from there on.
void Narrow(const int32_t* levels, size_t rows, size_t columns, size_t padded,
            int16_t* narrow, int32_t* totals) {
  constexpr size_t kMax = coding::kMaxJointDimensions;
  const auto narrow_rows = kernels::Active().joint->narrow;
  if (columns <= kMax) {
    narrow_rows(levels, rows, columns, padded, narrow, totals);
    return;
  }
  for (size_t row = 0; row < rows; ++row) {
    int64_t total = 0;
    for (size_t begin = 0; begin < columns; begin += kMax) {
      const size_t count = std::min(kMax, columns - begin);
      int32_t part;
      narrow_rows(levels + row * columns + begin, 1, count, padded,
                  narrow + row * padded + begin, &part);
      total += part;
    }
    totals[row] = static_cast<int32_t>(std::min<int64_t>(total, kNarrowTotal));
  }
}

}  // namespace

GroupReconstructor::GroupReconstructor(const coding::TensorHeader& header,
                                       const Geometry& geometry,
                                       const Block& block,
                                       const BlockContent& content,
                                       coding::Rotator* rotator, DType dtype,
                                       size_t head_stride, uint8_t* out)
    : header_(header),
      geometry_(geometry),
      block_(block),
      content_(content),
      rotator_(*rotator),
      dtype_(dtype),
      out_(out),
      channels_(geometry.channels()),
      row_size_(channels_ * DTypeSize(dtype)),
      head_size_(head_stride * DTypeSize(dtype)),
      sinks_(header.Int8Sinks(block)),
      sums_(kTokens * geometry.GroupSize(block, 0)),
      values_(kTokens * channels_) {
  const float mean_unit = header.step * 0.125f;
  for (const int8_t offset : content.offsets) {
    units_.push_back(header.step * coding::StepFactor(offset) *
                     (header.trellis ? 0x1p-15f : 0x1p-14f));
  }
  for (const int32_t mean : content.means) {
    means_.push_back(static_cast<float>(mean) * mean_unit);
  }
  norms_.resize(content.norms.size());
  std::transform(content.norms.begin(), content.norms.end(), norms_.begin(),
                 coding::NormOf);
}

void GroupReconstructor::PutGroup(size_t group, const coding::Matrix& matrix,
                                  const int32_t* levels) {
  const kernels::KernelSet& set = kernels::Active();
  const size_t n = matrix.size();
  const size_t first_head = group * geometry_.GroupHeads();
  // Zeros instead of a row that fills a pair.
  narrow_.assign(kTokens * matrix.PaddedSize(), 0);
  int32_t totals[kTokens];
  for (size_t begin = sinks_; begin < block_.tokens; begin += kTokens) {
    const size_t count = std::min(kTokens, block_.tokens - begin);
    Narrow(levels + begin * n, count, n, matrix.PaddedSize(), narrow_.data(),
           totals);
    set.multiply(narrow_.data(), matrix.pairs(),
                 {.rows = count, .inner = matrix.PaddedSize(), .columns = n},
                 sums_.data());
    for (size_t h = 0; h < n / channels_; ++h) {
      const size_t head = first_head + h;
      set.joint->finish(
          &sums_[h * channels_], n, count, channels_,
          {.units = &units_[begin],
           .means = &means_[head * channels_],
           .norms =
               header_.norms ? &norms_[head * block_.tokens + begin] : nullptr},
          values_.data());
      for (size_t t = 0; t < count; ++t) {
        if (totals[t] < kNarrowTotal) continue;
        PutWide(matrix, levels + (begin + t) * n, h * channels_, head,
                begin + t, &values_[t * channels_]);
      }
      if (header_.rotation) {
        rotator_.Rotate(*header_.rotation, false, channels_,
                        block_.first_token + begin, count, values_.data());
      }
      StoreElements(dtype_,
                    absl::MakeConstSpan(values_).subspan(0, count * channels_),
                    ElementsAt(head, begin));
    }
  }
}

void GroupReconstructor::PutWide(const coding::Matrix& matrix,
                                 const int32_t* levels, size_t first_channel,
                                 size_t head, size_t token,
                                 float* values) const {
  for (size_t i = 0; i < channels_; ++i) {
    int64_t sum = 0;
    for (size_t c = 0; c < matrix.size(); ++c) {
      sum += int64_t{levels[c]} * matrix.at(c, first_channel + i);
    }
    values[i] =
        static_cast<float>(sum) * units_[token] + means_[head * channels_ + i];
    if (header_.norms) values[i] *= norms_[head * block_.tokens + token];
  }
}

void GroupReconstructor::PutSinks() {
  for (size_t sink = 0; sink < content_.sink_scales.size(); ++sink) {
    content_.DecodeSink(sink, channels_, values_.data());
    StoreElements(dtype_, absl::MakeConstSpan(values_).subspan(0, channels_),
                  ElementsAt(sink / sinks_, sink % sinks_));
  }
}

}  // namespace kvcompress::klt
