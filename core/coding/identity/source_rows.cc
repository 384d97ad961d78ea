// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/source_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/elements.h"
#include "kernels/kernels.h"
#include "kernels/lane_sums.h"
#include "quantization/norms.h"
#include "quantization/outliers.h"
#include "tensor/slabs.h"

namespace kvcompress::coding {
namespace {

uint16_t MaxNorm(float step, int shift) {
  const float most = 2 * kNormError * static_cast<float>(1 << shift) / step;
  return static_cast<uint16_t>(
      std::max<uint32_t>(std::bit_cast<uint32_t>(most) >> 20, 1));
}

}  // namespace

void SourceRows::LoadSource(size_t first, absl::Span<float> values) const {
  LoadElements(dtype_, source_ + first * DTypeSize(dtype_), values);
}

double SourceRows::SumSquares(size_t elements, Checkpoint* checkpoint) const {
  // The products are exact.
  double squares[kernels::kSumLanes] = {};
  static_assert(kTileElements % kernels::kSumLanes == 0);
  static_assert(kSlab % kTileElements == 0);
  std::vector<float> values(kTileElements);
  InSlabs(checkpoint, elements, [&](size_t begin, size_t slab) {
    for (size_t i = 0; i < slab; i += kTileElements) {
      const auto part =
          absl::MakeSpan(values).first(std::min(kTileElements, slab - i));
      LoadSource(begin + i, part);
      for (size_t k = 0; k < part.size(); ++k) {
        squares[k % kernels::kSumLanes] += double{part[k]} * part[k];
      }
    }
  });
  double sum = 0;
  for (const double lane : squares) sum += lane;
  return sum;
}

void SourceRows::HideOutliers(float largest, size_t elements,
                              Checkpoint* checkpoint) {
  if (largest <= kOutlier) return;
  size_t outliers = 0;
  std::vector<float> values(kTileElements);
  InSlabs(checkpoint, elements, [&](size_t begin, size_t slab) {
    for (size_t i = 0; i < slab; i += kTileElements) {
      const auto part =
          absl::MakeSpan(values).first(std::min(kTileElements, slab - i));
      LoadSource(begin + i, part);
      outliers += CountOutliers(part);
    }
  });
  hides_outliers_ = OutliersAreRare(outliers, elements);
}

void SourceRows::LoadWithoutOutliers(size_t first,
                                     absl::Span<float> values) const {
  LoadSource(first, values);
  if (hides_outliers_) ZeroOutliers(values);
}

std::optional<FoundRotation> SourceRows::FindRotation(
    const RotationCandidates& candidates, std::optional<double>* likelier,
    Checkpoint* checkpoint) const {
  if (candidates.list.empty() && candidates.usual.empty()) return std::nullopt;
  const size_t channels = geometry_.channels();
  const size_t heads = std::min(geometry_.heads(), kRotationHeads);
  const size_t tokens = std::min(geometry_.tokens(), kRotationTokens);
  const size_t size = tokens * channels;
  std::vector<float> sample(heads * size);
  for (size_t h = 0; h < heads; ++h) {
    LoadWithoutOutliers(h * geometry_.tokens() * channels,
                        absl::MakeSpan(sample).subspan(h * size, size));
  }
  std::optional<FoundRotation> found = DetectRotation(
      sample.data(), heads, tokens, channels, candidates, checkpoint);
  *likelier = LikelierBase(sample.data(), heads, tokens, channels, candidates,
                           found, checkpoint);
  return found;
}

SourceRows::OfBlock::OfBlock(SourceRows* rows, const Block& block,
                             Rotator* rotator)
    : rows_(*rows), block_(block) {
  if (const auto& rotation = rows->header_.rotation) {
    rotation_table_ = rotator->TableOf(*rotation, rows->geometry_.channels(),
                                       block.first_token, block.tokens);
  }
}

void SourceRows::OfBlock::operator()(size_t head, size_t begin, size_t end,
                                     float* values) const {
  LoadUnscaled(head, begin, end, values);
  if (!rows_.header_.norms) return;
  const uint64_t first =
      rows_.geometry_.RowBegin(block_, head * block_.tokens + begin);
  rows_.Normalize(first / rows_.geometry_.channels(), end - begin,
                  block_.first_token + begin, values);
}

void SourceRows::OfBlock::LoadUnscaled(size_t head, size_t begin, size_t end,
                                       float* values) const {
  const size_t channels = rows_.geometry_.channels();
  rows_.LoadWithoutOutliers(
      rows_.geometry_.RowBegin(block_, head * block_.tokens + begin),
      absl::MakeSpan(values, (end - begin) * channels));
  if (const auto& rotation = rows_.header_.rotation) {
    Rotate(*rotation, rotation_table_ + begin * 2 * rotation->Pairs(channels),
           true, channels, end - begin, values);
  }
}

// Divides rows, tokens from `token` on, by their norms.
void SourceRows::Normalize(size_t row, size_t count, uint64_t token,
                           float* values) {
  const size_t channels = geometry_.channels();
  if (!norms_known_) {
    FindNorms(row, absl::MakeConstSpan(values, count * channels));
  }
  kernels::Active().rows.scale(&inverses_[row], count, channels, values);
  if (!AnyBounded(row, count)) return;
  // From one step to the next, as rounding has it.
  std::vector<uint16_t> norms(&full_norms_[row], &full_norms_[row] + count);
  std::vector<float> factors(count);
  for (const NormBounds& bounds : bounds_) {
    bool changes = false;
    for (size_t i = 0; i < count; ++i) {
      const uint16_t norm = Bounded(row + i, token + i, bounds);
      factors[i] = norm == norms[i] ? 1 : NormOf(norms[i]) / NormOf(norm);
      changes |= norm != norms[i];
      norms[i] = norm;
    }
    if (changes) {
      kernels::Active().rows.scale(factors.data(), count, channels, values);
    }
  }
}

void SourceRows::MakeRoomForNorms() {
  const size_t rows = geometry_.heads() * geometry_.tokens();
  full_norms_.resize(rows);
  inverses_.resize(rows);
}

// Of the rows from `row` on.
void SourceRows::FindNorms(size_t row, absl::Span<const float> values) {
  const size_t channels = geometry_.channels();
  const auto sum_squares = kernels::Active().rows.sum_squares;
  std::vector<double> squares(values.size() / channels);
  for (size_t i = 0; i < squares.size(); ++i) {
    squares[i] = sum_squares(values.data() + i * channels, channels);
  }
  for (const double each : squares) {
    const uint16_t code = NormCode(each, channels);
    const float norm = NormOf(code);
    full_norms_[row] = code;
    inverses_[row] = norm == 0 ? 0 : 1 / norm;
    ++row;
  }
}

uint16_t SourceRows::Bounded(size_t row, uint64_t token,
                             const NormBounds& bounds) const {
  const int shift = header_.ShiftOf(token, geometry_.tokens());
  return std::min(full_norms_[row], bounds[static_cast<size_t>(shift)]);
}

void SourceRows::AddNormBounds(Checkpoint* checkpoint) {
  if (bounds_.empty()) {
    norms_.reserve(full_norms_.size());
    InSlabs(checkpoint, full_norms_.size(), [&](size_t first, size_t count) {
      const auto begin = full_norms_.begin() + static_cast<ptrdiff_t>(first);
      norms_.insert(norms_.end(), begin, begin + static_cast<ptrdiff_t>(count));
    });
    if (Stops(checkpoint)) return;
  }
  NormBounds& bounds = bounds_.emplace_back();
  for (int shift = 0; shift <= kMaxShift; ++shift) {
    bounds[static_cast<size_t>(shift)] = MaxNorm(header_.step, shift);
  }
  least_bound_ = std::min(least_bound_, bounds[0]);
}

bool SourceRows::AnyBounded(size_t row, size_t count) const {
  const uint16_t* const norms = full_norms_.data() + row;
  return std::any_of(norms, norms + count,
                     [this](uint16_t norm) { return norm > least_bound_; });
}

bool SourceRows::BoundNorms(const Block& block, size_t first) {
  bool changes = false;
  size_t row = first / geometry_.channels();
  if (!AnyBounded(row, block.heads * block.tokens)) return false;
  for (size_t h = 0; h < block.heads; ++h) {
    for (size_t t = 0; t < block.tokens; ++t, ++row) {
      const uint16_t norm = Bounded(row, block.first_token + t, bounds_.back());
      changes |= norm != norms_[row];
      norms_[row] = norm;
    }
  }
  return changes;
}

}  // namespace kvcompress::coding
