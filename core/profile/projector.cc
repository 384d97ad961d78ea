// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/projector.h"

#include <algorithm>
#include <cmath>

#include "kernels/elements.h"
#include "kernels/kernels.h"
#include "profile/rotation.h"

namespace kvcompress::profile {
namespace {

// A unit of the factors of a component, whose length is about 1.
constexpr float kUnit = 0x1p-15f;
// Components of length 2^15 and tokens of at most this length have products
// below 2^31.
constexpr float kMaxLength = 60000;
constexpr float kMaxPart = 32767;
// Products of a block between two looks at the checkpoint, if kLeastPanel
// components do not take more.
constexpr uint64_t kMaxProducts = uint64_t{1} << 27;
constexpr size_t kLeastPanel = 16;

size_t PanelOf(size_t inner) {
  const uint64_t components = kMaxProducts / (kMaxBlockTokens * inner);
  return std::max<uint64_t>(kLeastPanel,
                            components / kLeastPanel * kLeastPanel);
}

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

Projector::Projector(const ProfileGroup& group, Checkpoint* checkpoint)
    : group_(group),
      checkpoint_(checkpoint),
      inner_(group.channels() + group.channels() % 2),
      panel_(PanelOf(inner_)),
      factors_(group.channels()),
      right_(inner_ * group.components) {
  const size_t channels = group.channels();
  const bool own = !group.encode.empty();
  for (size_t i = 0; i < channels; ++i) {
    factors_[i] =
        own ? group.encode_scales[i] / kUnit : kUnit / group.scales[i];
  }
  PrepareRight();
}

void Projector::PrepareRight() {
  const size_t channels = group_.channels();
  const std::vector<int16_t>& matrix =
      group_.encode.empty() ? group_.decode : group_.encode;
  for (size_t begin = 0; begin < group_.components; begin += panel_) {
    if (Stops(checkpoint_)) return;
    const size_t columns = std::min(panel_, group_.components - begin);
    int16_t* const pairs = &right_[begin * inner_];
    for (size_t j = 0; j < columns; ++j) {
      const int16_t* const row = &matrix[(begin + j) * channels];
      for (size_t i = 0; i < channels; ++i) {
        pairs[(i / 2 * columns + j) * 2 + i % 2] = row[i];
      }
    }
  }
}

void Projector::Project(size_t count, float* values, float* projected) {
  const size_t channels = group_.channels();
  left_.assign(count * inner_, 0);
  std::vector<float> units(count);
  for (size_t t = 0; t < count; ++t) {
    float* const row = values + t * channels;
    float squares = 0;
    for (size_t i = 0; i < channels; ++i) {
      row[i] = (row[i] - group_.means[i]) * factors_[i];
      squares += row[i] * row[i];
    }
    if (!(squares > 0) || !std::isfinite(squares)) continue;
    const float scale = kMaxLength / std::sqrt(squares);
    units[t] = kUnit / scale;
    for (size_t i = 0; i < channels; ++i) {
      left_[t * inner_ + i] = static_cast<int16_t>(
          std::lrint(std::clamp(row[i] * scale, -kMaxPart, kMaxPart)));
    }
  }
  product_.resize(count * std::min(panel_, group_.components));
  for (size_t begin = 0; begin < group_.components; begin += panel_) {
    if (Stops(checkpoint_)) return;
    const size_t columns = std::min(panel_, group_.components - begin);
    kernels::Active().multiply(
        left_.data(), &right_[begin * inner_],
        {.rows = count, .inner = inner_, .columns = columns}, product_.data());
    for (size_t t = 0; t < count; ++t) {
      for (size_t j = 0; j < columns; ++j) {
        projected[t * group_.components + begin + j] =
            static_cast<float>(product_[t * columns + j]) * units[t];
      }
    }
  }
}

}  // namespace kvcompress::profile
