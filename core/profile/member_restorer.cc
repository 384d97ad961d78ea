// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/member_restorer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/elements.h"
#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "profile/rotation.h"
#include "quantization/int8.h"

namespace kvcompress::profile {
namespace {

// Elements that are restored at once, in bytes, if a token is not larger, and
// products that this takes at most, if one token does not take more.
constexpr uint64_t kPiece = 64 << 10;
constexpr uint64_t kMaxProducts = uint64_t{1} << 26;

}  // namespace

MemberRestorer::MemberRestorer(std::shared_ptr<const GroupQuanta> quanta,
                               size_t member)
    : quanta_(std::move(quanta)),
      member_(member),
      tensor_(quanta_->group().tensors[member]),
      dtype_(quanta_->shape().dtypes[member]),
      exceptions_(quanta_->ExceptionsOf(member), dtype_) {
  for (size_t i = 0; i < member; ++i) {
    first_channel_ += quanta_->group().tensors[i].width();
  }
}

size_t MemberRestorer::tokens_at_once() const {
  const uint64_t used = std::max<uint64_t>(1, quanta_->components_end());
  return std::max<uint64_t>(
      1, std::min(kPiece / (tensor_.channels * DTypeSize(dtype_)),
                  kMaxProducts / (used * tensor_.channels)));
}

void MemberRestorer::TakeHead(uint64_t head) {
  if (head == head_) return;
  head_ = head;
  const ProfileGroup& group = quanta_->group();
  const size_t channels = tensor_.channels;
  // Few tokens may use few components of a large matrix.
  const size_t components = quanta_->components_end();
  basis_.resize(components * channels);
  const int16_t* const first = &group.decode[first_channel_ + head * channels];
  for (size_t j = 0; j < components; ++j) {
    std::memcpy(&basis_[j * channels], first + j * group.channels(),
                channels * sizeof(int16_t));
  }
  scales_.resize(channels);
  const float unit = quanta_->UnitOf(member_);
  for (size_t i = 0; i < channels; ++i) {
    scales_[i] = group.scales[first_channel_ + head * channels + i] * unit;
  }
  narrow_.resize(channels);
  wide_.resize(channels);
}

void MemberRestorer::RestoreToken(uint64_t batch, uint64_t token,
                                  float* values) {
  const ProfileGroup& group = quanta_->group();
  const size_t channels = tensor_.channels;
  const size_t first = first_channel_ + head_ * channels;
  const GroupQuanta::Token sparse =
      quanta_->TokenAt(batch * quanta_->shape().tokens + token);
  if (sparse.narrow) {
    kernels::Active().joint->sum_scaled_rows({.rows = basis_.data(),
                                              .columns = channels,
                                              .index = sparse.components.data(),
                                              .factors = sparse.quanta.data(),
                                              .count = sparse.quanta.size()},
                                             narrow_.data());
  } else {
    std::fill(wide_.begin(), wide_.end(), 0);
    for (size_t k = 0; k < sparse.quanta.size(); ++k) {
      const int16_t* const row = &basis_[sparse.components[k] * channels];
      for (size_t i = 0; i < channels; ++i) {
        wide_[i] += int64_t{sparse.quanta[k]} * row[i];
      }
    }
  }
  for (size_t i = 0; i < channels; ++i) {
    const float sum = sparse.narrow ? static_cast<float>(narrow_[i])
                                    : static_cast<float>(wide_[i]);
    values[i] = sum * (sparse.unit * scales_[i]) + group.means[first + i];
  }
}

void MemberRestorer::Turn(uint64_t first, size_t count, float* values) {
  const ProfileRotation& rotation =
      quanta_->content().rotations[*tensor_.rotation];
  const uint64_t position = quanta_->header().first_position + first;
  if (table_first_ != position || table_count_ != count) {
    table_first_ = position;
    table_count_ = count;
    FillTable(rotation, position, count, &table_);
  }
  RotateHead(rotation, table_.data(), count, tensor_.channels, /*back=*/false,
             &pairs_, values);
}

uint64_t MemberRestorer::ElementAt(uint64_t batch, uint64_t head,
                                   uint64_t token) const {
  return ((batch * tensor_.heads + head) * quanta_->shape().tokens + token) *
         tensor_.channels;
}

void MemberRestorer::Restore(uint64_t batch, uint64_t head, uint64_t first,
                             size_t count, uint8_t* elements) {
  RestoreCoded(batch, head, first, count, elements);
  exceptions_.Apply(ElementAt(batch, head, first), count * tensor_.channels,
                    elements);
}

void MemberRestorer::Skip(uint64_t batch, uint64_t head, uint64_t first,
                          size_t count) {
  exceptions_.Apply(ElementAt(batch, head, first), count * tensor_.channels,
                    nullptr);
}

void MemberRestorer::RestoreCoded(uint64_t batch, uint64_t head, uint64_t first,
                                  size_t count, uint8_t* elements) {
  TakeHead(head);
  const size_t channels = tensor_.channels;
  const size_t row = channels * DTypeSize(dtype_);
  values_.resize(count * channels);
  const uint64_t sinks = quanta_->header().sinks;
  size_t coded = 0;
  for (; coded < count && first + coded < sinks; ++coded) {
    const absl::string_view sink =
        quanta_->Sink(member_, batch, head, first + coded);
    if (quanta_->header().exact_sinks) {
      std::memcpy(elements + coded * row, sink.data(), row);
      continue;
    }
    uint16_t scale;
    std::memcpy(&scale, sink.data(), sizeof(scale));
    float* const values = &values_[coded * channels];
    for (size_t i = 0; i < channels; ++i) {
      values[i] = coding::Int8Scale::Dequantize(
          static_cast<int8_t>(sink[sizeof(scale) + i]), scale);
    }
    StoreElements(dtype_, absl::MakeConstSpan(values, channels),
                  elements + coded * row);
  }
  if (coded == count) return;
  for (size_t t = coded; t < count; ++t) {
    RestoreToken(batch, first + t, &values_[t * channels]);
  }
  float* const values = &values_[coded * channels];
  if (tensor_.rotation) Turn(first + coded, count - coded, values);
  StoreElements(dtype_, absl::MakeConstSpan(values, (count - coded) * channels),
                elements + coded * row);
}

}  // namespace kvcompress::profile
