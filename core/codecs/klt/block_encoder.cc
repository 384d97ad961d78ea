// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
// More than 400 lines: what a block is measured, tried and written by.

#include "codecs/klt/block_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "codecs/klt/block_writer.h"
#include "codecs/klt/reconstruct.h"
#include "codecs/klt/rounding.h"
#include "entropy/tables.h"
#include "kernels/elements.h"
#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "quantization/exceptions.h"
#include "quantization/norms.h"
#include "quantization/steps.h"
#include "tensor/grow.h"

namespace kvcompress::klt {
namespace {

// Tokens that are finer than this, in quarter octaves, are not typical: they
// are rounded to the nearest, and left out of statistics.
constexpr int kFine = 12;
// Coefficients are found from integers in these parts of a step, of many tokens
// together.
constexpr float kParts = 64;
constexpr size_t kTokens = 32;
// Squared length of a token's integers up to which each of them fits 16 bits,
// and sums 32 bits, as the rows of a matrix are hardly longer than 2^14.
constexpr float kNarrowSquares = 0x1p30f;

}  // namespace

BlockEncoder::BlockEncoder(const coding::TensorHeader& header,
                           const Geometry& geometry, const Block& block,
                           float max_error, DType dtype, BlockSource input,
                           absl::Span<const int8_t> offsets)
    : header_(header),
      geometry_(geometry),
      block_(block),
      max_error_(max_error),
      dtype_(dtype),
      input_(input),
      channels_(geometry.channels()),
      all_channels_(geometry.Channels(block)),
      sinks_(header.Int8Sinks(block)),
      means_(all_channels_),
      squares_(all_channels_),
      most_(all_channels_),
      largest_of_groups_(geometry.Groups(block)),
      levels_(geometry.Groups(block)) {
  if (header.norms) content_.norms.resize(block.heads * block.tokens);
  content_.offsets.assign(offsets.begin(), offsets.end());
  content_.EncodeSinks(dtype, input.source, block.heads, input.head_stride,
                       sinks_, channels_);
}

BlockEncoder::BlockEncoder(const BlockEncoder& whole,
                           const coding::TensorHeader& header,
                           const Block& block)
    : header_(header),
      geometry_(whole.geometry_),
      block_(block),
      max_error_(whole.max_error_),
      dtype_(whole.dtype_),
      channels_(whole.channels_),
      all_channels_(whole.all_channels_),
      sinks_(header.Int8Sinks(block)),
      means_(whole.means_) {}

BlockEncoder BlockEncoder::Sample(const coding::TensorHeader& header,
                                  size_t stride,
                                  coding::Rotator* rotator) const {
  // From the middle on: the first token is never like the others.
  std::vector<size_t> tokens;
  for (size_t t = stride / 2; t < block_.tokens; t += stride) {
    tokens.push_back(t);
  }
  Block block = block_;
  block.tokens = tokens.size();
  BlockEncoder sample(*this, header, block);
  for (const size_t t : tokens) {
    sample.content_.offsets.push_back(content_.offsets[t]);
    if (!IsOutside(t)) sample.square_count_ += all_channels_;
  }
  std::vector<float>& values = sample.sample_values_;
  values.resize(geometry_.Elements(block));
  sample.sample_source_.resize(values.size() * DTypeSize(dtype_));
  const coding::SourceRows::OfBlock rows(input_.rows, block_, rotator);
  float* row = values.data();
  uint8_t* source = sample.sample_source_.data();
  std::vector<float> whole(channels_);  // with its norm
  for (size_t h = 0; h < block.heads; ++h) {
    for (const size_t t : tokens) {
      rows.LoadUnscaled(h, t, t + 1, row);
      Normalize(h, t, 1, row);
      float norm = 1;
      if (header_.norms) {
        sample.content_.norms.push_back(content_.norms[h * block_.tokens + t]);
        norm = coding::NormOf(sample.content_.norms.back());
      }
      for (size_t c = 0; c < channels_; ++c) whole[c] = row[c] * norm;
      StoreElements(dtype_, whole, source);
      row += channels_;
      source += channels_ * DTypeSize(dtype_);
    }
  }
  sample.input_ = {.source = sample.sample_source_.data(),
                   .head_stride = block.tokens * channels_};
  return sample;
}

bool BlockEncoder::IsOutside(size_t token) const {
  return token < sinks_ || content_.offsets[token] >= kFine;
}

const float* BlockEncoder::LoadGroup(size_t group,
                                     EncoderMemory* memory) const {
  if (is_sample()) return &sample_values_[geometry_.GroupBegin(block_, group)];
  std::vector<float>& values = *memory->values;
  const size_t heads = geometry_.GroupSize(block_, group) / channels_;
  Grow(heads * block_.tokens * channels_, &values);
  const coding::SourceRows::OfBlock rows(input_.rows, block_, &memory->rotator);
  for (size_t i = 0; i < heads; ++i) {
    const size_t head = group * geometry_.GroupHeads() + i;
    for (size_t t = 0; t < block_.tokens; t += kTokens) {
      const size_t count = std::min(kTokens, block_.tokens - t);
      float* const tile = &values[PositionOf(i * channels_, t)];
      rows.LoadUnscaled(head, t, t + count, tile);
      Normalize(head, t, count, tile);
    }
  }
  return values.data();
}

void BlockEncoder::Normalize(size_t head, size_t token, size_t count,
                             float* values) const {
  if (!header_.norms) return;
  float inverses[kTokens];
  for (size_t i = 0; i < count; ++i) {
    const uint16_t code = content_.norms[head * block_.tokens + token + i];
    inverses[i] = code == 0 ? 0 : 1 / coding::NormOf(code);
  }
  kernels::Active().rows.scale(inverses, count, channels_, values);
}

void BlockEncoder::FindNorms(size_t head, size_t token, size_t count,
                             const float* values) {
  uint16_t* const norms = &content_.norms[head * block_.tokens + token];
  for (size_t t = 0; t < count; ++t) {
    norms[t] = coding::NormCode({values + t * channels_, channels_});
  }
}

void BlockEncoder::Measure(size_t group, EncoderMemory* memory,
                           coding::Covariance* covariance) {
  std::vector<float>& values = *memory->values;
  const size_t heads = geometry_.GroupSize(block_, group) / channels_;
  const size_t head_size = block_.tokens * channels_;
  Grow(heads * head_size, &values);
  const coding::SourceRows::OfBlock rows(input_.rows, block_, &memory->rotator);
  for (size_t i = 0; i < heads; ++i) {
    const size_t head = group * geometry_.GroupHeads() + i;
    float* const of_head = &values[i * head_size];
    for (size_t t = 0; t < block_.tokens; t += kTokens) {
      const size_t count = std::min(kTokens, block_.tokens - t);
      float* const tile = of_head + t * channels_;
      rows.LoadUnscaled(head, t, t + count, tile);
      if (header_.norms) FindNorms(head, t, count, tile);
      Normalize(head, t, count, tile);
    }
    double& largest = largest_of_groups_[group];
    largest = std::max<double>(
        largest,
        LargestMagnitude(DType::kF32, reinterpret_cast<const uint8_t*>(of_head),
                         head_size));
    MeasureHead(head, of_head);
  }
  AddTo(group, values.data(), covariance);
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

void BlockEncoder::FinishMeasuring() {
  for (const uint16_t code : content_.norms) {
    const float norm = coding::NormOf(code);
    norm_square_sum_ += static_cast<double>(norm) * norm;
  }
  for (const double squares : squares_) square_sum_ += squares;
  largest_ =
      *std::max_element(largest_of_groups_.begin(), largest_of_groups_.end());
  ForEachRunInside([&](size_t begin, size_t end) {
    square_count_ += (end - begin) * all_channels_;
  });
}

void BlockEncoder::MeasureHead(size_t head, const float* values) {
  const size_t first = head * channels_;
  uint64_t count = 0;
  ForEachRunInside([&](size_t begin, size_t end) {
    count += end - begin;
    const float most = kernels::Active().rows.sum_columns(
        values + begin * channels_,
        {.rows = end - begin, .columns = channels_, .stride = channels_},
        &means_[first], &squares_[first]);
    most_[first] = std::max<double>(most_[first], most);
  });
  if (count == 0) return;
  for (size_t channel = first; channel < first + channels_; ++channel) {
    double& mean = means_[channel];
    mean /= static_cast<double>(count);
    // Below 0 only by rounding.
    squares_[channel] = std::max(
        0.0, squares_[channel] - static_cast<double>(count) * mean * mean);
    most_[channel] = most_[first] + std::abs(mean);
  }
}

void BlockEncoder::AddTo(size_t group, const float* values,
                         coding::Covariance* covariance) const {
  const size_t first = geometry_.GroupFirst(group);
  const size_t size = geometry_.GroupSize(block_, group);
  std::vector<const float*> rows;
  rows.reserve(block_.tokens * size / channels_);
  for (size_t t = 0; t < block_.tokens; ++t) {
    if (IsOutside(t)) continue;
    for (size_t i = 0; i < size; i += channels_) {
      rows.push_back(values + PositionOf(i, t));
    }
  }
  std::vector<float> means(size);
  double squares = 0;
  double most = 0;
  for (size_t i = 0; i < size; ++i) {
    means[i] = static_cast<float>(means_[first + i]);
    squares = std::max(squares, squares_[first + i]);
    most = std::max(most, most_[first + i]);
  }
  covariance->Add(rows, channels_, means, most, squares);
}

void BlockEncoder::Transform(size_t group, const float* values,
                             const coding::Matrix& matrix,
                             const coding::Matrix& transposed,
                             EncoderMemory* memory, double* variances) const {
  const kernels::KernelSet& set = kernels::Active();
  const size_t first = geometry_.GroupFirst(group);
  const size_t n = matrix.size();
  const size_t padded = matrix.PaddedSize();
  const float mean_unit = header_.step * 0.125f;
  const float inverse_step = 1 / header_.step;
  std::vector<float> means(n);
  for (size_t i = 0; i < n; ++i) {
    means[i] = static_cast<float>(content_.means[first + i]) * mean_unit;
  }
  const std::vector<float> zeros(n);
  const std::vector<float> units(kTokens, 0x1p-14f / kParts);
  Grow(block_.tokens * n, &memory->coefficients);
  // Zeros instead of a channel that fills a pair.
  memory->parts.assign(kTokens * padded, 0);
  memory->sums.resize(kTokens * n);
  for (size_t begin = sinks_; begin < block_.tokens; begin += kTokens) {
    const size_t count = std::min(kTokens, block_.tokens - begin);
    float squares[kTokens] = {};
    for (size_t i = 0; i < n; i += channels_) {
      set.joint->quantize_parts(values + PositionOf(i, begin), count, channels_,
                                &means[i], inverse_step * kParts, padded,
                                &memory->parts[i], squares);
    }
    set.multiply(memory->parts.data(), transposed.pairs(),
                 {.rows = count, .inner = padded, .columns = n},
                 memory->sums.data());
    float* const out = &memory->coefficients[begin * n];
    set.joint->finish(memory->sums.data(), n, count, n,
                      {.units = units.data(), .means = zeros.data()}, out);
    for (size_t t = 0; t < count; ++t) {
      if (squares[t] < kNarrowSquares) continue;
      TransformWide(values, begin + t, matrix, means.data(), out + t * n);
    }
  }
  std::vector<double> sums_of_columns(n);
  ForEachRunInside([&](size_t begin, size_t end) {
    set.rows.sum_columns(&memory->coefficients[begin * n],
                         {.rows = end - begin, .columns = n, .stride = n},
                         sums_of_columns.data(), variances + first);
  });
}

void BlockEncoder::TransformWide(const float* values, size_t token,
                                 const coding::Matrix& matrix,
                                 const float* means,
                                 float* coefficients) const {
  const size_t n = matrix.size();
  const float inverse_step = 1 / header_.step;
  std::vector<double> sums(n);
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) {
    x[i] = (values[PositionOf(i, token)] - means[i]) * inverse_step;
  }
  for (size_t c = 0; c < n; ++c) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += static_cast<double>(x[i]) * matrix.at(c, i);
    }
    coefficients[c] = static_cast<float>(sum * 0x1p-14);
  }
}

std::vector<DistortionSums> BlockEncoder::Quantize(const Bases& bases,
                                                   EncoderMemory* memory,
                                                   uint8_t* decoded) {
  std::vector<DistortionSums> lost_by_heads;
  std::vector<double> variances(all_channels_);
  content_.classes.resize(all_channels_);
  content_.means = coding::QuantizeMeans(means_, header_.step);
  const double scale = square_count_ == 0
                           ? 0
                           : static_cast<double>(all_channels_) /
                                 static_cast<double>(square_count_);
  GroupReconstructor reconstructor(header_, geometry_, block_, content_,
                                   &memory->rotator, dtype_, input_.head_stride,
                                   decoded);
  for (size_t group = 0; group < bases.matrices.size(); ++group) {
    if (Stops(memory->checkpoint)) return lost_by_heads;
    const coding::Matrix& matrix = bases.matrices[group];
    // In steps, as levels; and the variance of each component.
    Transform(group, LoadGroup(group, memory), matrix, bases.transposed[group],
              memory, variances.data());
    const size_t first = geometry_.GroupFirst(group);
    for (size_t i = first; i < first + matrix.size(); ++i) {
      content_.classes[i] =
          static_cast<uint8_t>(coding::ClassOf(variances[i] * scale));
    }
    const RoundingInput input = {.coefficients = memory->coefficients,
                                 .offsets = content_.offsets,
                                 .first_token = sinks_,
                                 .fine = kFine,
                                 .checkpoint = memory->checkpoint};
    const absl::Span<uint8_t> classes =
        absl::MakeSpan(content_.classes).subspan(first, matrix.size());
    const size_t count = block_.tokens * matrix.size();
    Grow(count, &*memory->levels);
    int32_t* const levels = memory->levels->data();
    std::fill_n(levels, sinks_ * matrix.size(), 0);
    if (header_.trellis) {
      RoundByTrellis(input, classes, levels);
    } else {
      Round(input, classes, levels);
    }
    // Levels that were not reached are not set.
    if (Stops(memory->checkpoint)) return lost_by_heads;
    if (!is_sample()) {
      ChooseClasses(input, header_.trellis, levels, classes);
      levels_[group].Pack({levels, count});
    }
    reconstructor.PutGroup(group, matrix, levels);
  }
  reconstructor.PutSinks();
  coding::ExceptionWriter exceptions(dtype_);
  const size_t count = block_.tokens * channels_;
  for (size_t h = 0; h < block_.heads; ++h) {
    if (Stops(memory->checkpoint)) return lost_by_heads;
    const size_t begin = h * input_.head_stride * DTypeSize(dtype_);
    const uint8_t* const from = input_.source + begin;
    DistortionSums lost = CompareElements(dtype_, from, decoded + begin, count);
    if (max_error_ > 0 && lost.max_abs_e > max_error_) {
      exceptions.AddHead(from, count, max_error_, decoded + begin);
      lost = CompareElements(dtype_, from, decoded + begin, count);
    } else {
      exceptions.SkipHead(count);
    }
    lost_by_heads.push_back(lost);
  }
  exceptions_ = exceptions.bytes();
  return lost_by_heads;
}

bool BlockEncoder::Write(const Bases& bases, bool same_bases,
                         EncoderMemory* memory, std::string* payload) const {
  Grow(geometry_.Elements(block_), &*memory->levels);
  int32_t* const levels = memory->levels->data();
  for (size_t group = 0; group < levels_.size(); ++group) {
    levels_[group].Unpack(levels + geometry_.GroupBegin(block_, group));
  }
  return WriteBlock(header_, geometry_, block_, content_, levels,
                    same_bases ? absl::Span<const coding::Reflectors>()
                               : absl::MakeConstSpan(bases.reflectors),
                    exceptions_, &*memory->symbols, &*memory->words,
                    memory->checkpoint, payload);
}

}  // namespace kvcompress::klt
