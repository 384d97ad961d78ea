// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/projector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/elements.h"
#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "profile/rotation.h"

namespace kvcompress::profile {
namespace {

// A unit of the factors of a component, whose length is about 1.
constexpr float kUnit = 0x1p-15f;
// Components of length 2^15 and tokens of at most this length have products
// below 2^31.
constexpr float kMaxLength = 60000;

}  // namespace

void TokenGatherer::Gather(uint64_t batch, uint64_t first, size_t count,
                           float* values) {
  const size_t channels = group_.channels();
  for (size_t i = 0; i < tables_.size(); ++i) {
    FillTable(content_.rotations[i], first_position_ + first, count,
              &tables_[i]);
  }
  size_t column = 0;
  for (size_t i = 0; i < group_.tensors.size(); ++i) {
    const ProfileTensor& tensor = group_.tensors[i];
    const size_t size = DTypeSize(shape_.dtypes[i]);
    head_.resize(count * tensor.channels);
    for (uint64_t h = 0; h < tensor.heads; ++h) {
      if (Stops(checkpoint_)) return;
      const uint64_t element =
          ((batch * tensor.heads + h) * shape_.tokens + first) *
          tensor.channels;
      LoadElements(
          shape_.dtypes[i],
          reinterpret_cast<const uint8_t*>(sources_[i].data()) + element * size,
          absl::MakeSpan(head_));
      if (tensor.rotation) {
        RotateHead(content_.rotations[*tensor.rotation],
                   tables_[*tensor.rotation].data(), count, tensor.channels,
                   /*back=*/true, &pairs_, head_.data());
      }
      for (size_t t = 0; t < count; ++t) {
        std::copy_n(&head_[t * tensor.channels], tensor.channels,
                    values + t * channels + column);
      }
      column += tensor.channels;
    }
  }
}

Projector::Projector(const ProfileGroup& group,
                     std::shared_ptr<const PreparedBasis> basis,
                     Checkpoint* checkpoint, absl::Span<const float> units)
    : group_(group),
      basis_(std::move(basis)),
      checkpoint_(checkpoint),
      factors_(group.channels()),
      zeros_(std::max(group.channels(), group.components)) {
  const size_t channels = group.channels();
  const bool own = !group.encode.empty();
  for (size_t i = 0; i < channels; ++i) {
    factors_[i] =
        own ? group.encode_scales[i] / kUnit : kUnit / group.scales[i];
  }
  size_t first = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const size_t end = first + group.tensors[i].width();
    for (; first < end; ++first) factors_[first] /= units[i];
  }
}

void Projector::Project(size_t count, float* values, float* projected) {
  const size_t most = TokensAtOnce();
  for (size_t t = 0; t < count; t += most) {
    if (Stops(checkpoint_)) return;
    const size_t some = std::min(most, count - t);
    float* const from = values + t * group_.channels();
    float* const to = projected + t * group_.components;
    if (has_tiles()) {
      TakeTiles(0, some, from);
      ProjectTiles(some, to);
    } else {
      ProjectSome(some, from, to);
    }
  }
}

float Projector::TakeToken(float* row, size_t inner, int16_t* integers) {
  const kernels::KernelSet& kernels = kernels::Active();
  const size_t channels = group_.channels();
  for (size_t i = 0; i < channels; ++i) {
    row[i] = (row[i] - group_.means[i]) * factors_[i];
  }
  const double squares = kernels.rows.sum_squares(row, channels);
  if (!(squares > 0) || !std::isfinite(squares)) {
    std::fill_n(integers, inner, int16_t{0});
    return 0;
  }
  const auto scale = static_cast<float>(kMaxLength / std::sqrt(squares));
  float unused = 0;
  kernels.joint->quantize_parts(row, 1, channels, zeros_.data(), scale, inner,
                                integers, &unused);
  return kUnit / scale;
}

void Projector::TakeTiles(size_t first, size_t count, float* values) {
  const kernels::InnerBlocks blocks = basis_->blocks();
  left_tiles_.resize(kernels::kTileTokens * blocks.inner());
  units_.resize(kernels::kTileTokens);
  left_.assign(blocks.inner(), 0);
  for (size_t t = 0; t < count; ++t) {
    units_[first + t] =
        TakeToken(values + t * group_.channels(), blocks.inner(), left_.data());
    basis_->kernels()->split(left_.data(), blocks, first + t,
                             reinterpret_cast<int8_t*>(left_tiles_.data()));
  }
}

void Projector::ProjectTiles(size_t count, float* projected) {
  constexpr size_t kColumns = kernels::kColumnTilesAtOnce * kernels::kTileRows;
  sums_.resize(kernels::kTileTokens * kColumns);
  for (size_t begin = 0; begin < group_.components; begin += kColumns) {
    if (Stops(checkpoint_)) return;
    basis_->kernels()->project(
        {.blocks = basis_->blocks(),
         .left = reinterpret_cast<const int8_t*>(left_tiles_.data()),
         .right = basis_->tiles(),
         .column_tiles = basis_->column_tiles(),
         .first = begin / kernels::kTileRows,
         .columns = std::min(kColumns, group_.components - begin),
         .tokens = count,
         .units = units_.data(),
         .sums = sums_.data(),
         .values = projected + begin,
         .stride = group_.components});
  }
}

void Projector::ProjectSome(size_t count, float* values, float* projected) {
  const kernels::KernelSet& kernels = kernels::Active();
  const size_t inner = basis_->inner();
  left_.assign(count * inner, 0);
  units_.resize(count);
  for (size_t t = 0; t < count; ++t) {
    units_[t] =
        TakeToken(values + t * group_.channels(), inner, &left_[t * inner]);
  }
  product_.resize(count * kPanel);
  for (size_t begin = 0; begin < group_.components; begin += kPanel) {
    if (Stops(checkpoint_)) return;
    const size_t columns = std::min(kPanel, group_.components - begin);
    kernels.multiply(left_.data(), basis_->Panel(begin),
                     {.rows = count, .inner = inner, .columns = kPanel},
                     product_.data());
    for (size_t t = 0; t < count; ++t) {
      kernels.joint->finish(&product_[t * kPanel], kPanel, 1, columns,
                            {.units = &units_[t], .means = zeros_.data()},
                            &projected[t * group_.components + begin]);
    }
  }
}

GroupProjector::GroupProjector(const ProfileContent& content, size_t group,
                               const GroupShape& shape,
                               absl::Span<const absl::string_view> sources,
                               uint64_t first_position,
                               std::shared_ptr<const PreparedBasis> basis,
                               Checkpoint* checkpoint,
                               absl::Span<const float> units)
    : components_(content.groups[group].components),
      checkpoint_(checkpoint),
      gatherer_(content, group, shape, sources, first_position, checkpoint),
      projector_(content.groups[group], std::move(basis), checkpoint, units),
      values_(kTokensAtOnce * content.groups[group].channels()) {}

void GroupProjector::Project(uint64_t batch, uint64_t first, size_t count,
                             float* projected) {
  const size_t most = projector_.TokensAtOnce();
  for (size_t begin = 0; begin < count; begin += most) {
    const size_t all = std::min(most, count - begin);
    for (size_t t = 0; t < all; t += kTokensAtOnce) {
      if (Stops(checkpoint_)) return;
      const size_t some = std::min(kTokensAtOnce, all - t);
      gatherer_.Gather(batch, first + begin + t, some, values_.data());
      if (projector_.has_tiles()) {
        projector_.TakeTiles(t, some, values_.data());
      } else {
        projector_.Project(some, values_.data(),
                           projected + begin * components_);
      }
    }
    if (projector_.has_tiles()) {
      projector_.ProjectTiles(all, projected + begin * components_);
    }
  }
}

uint64_t GroupProjector::MaxMemory(const ProfileGroup& group) {
  // Of a channel of a token: the value, its integer, and a head, with what it
  // is rotated in and by.
  constexpr uint64_t kEach = 16;
  const uint64_t values = kEach * kTokensAtOnce * group.channels();
  if (kernels::Active().joint->tiles == nullptr) return values;
  // Integers in tiles, and sums of some columns.
  constexpr uint64_t kSums = kernels::kColumnTilesAtOnce * kernels::kTileRows;
  return values + kernels::kTileTokens *
                      (sizeof(int16_t) *
                           kernels::InnerBlocks::Of(group.channels()).inner() +
                       sizeof(int32_t) * kSums);
}

}  // namespace kvcompress::profile
