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
#include "status/macros.h"

namespace kvcompress::profile {
namespace {

using kernels::kStripColumns;

// Elements that are restored at once, in bytes, if a token is not larger, and
// products that this takes at most, if one token does not take more.
constexpr uint64_t kPiece = 64 << 10;
constexpr uint64_t kMaxProducts = uint64_t{1} << 26;
// What is held of a channel besides, in bytes.
constexpr uint64_t kOfChannel = 64;

}  // namespace

uint64_t MemberRestorer::Memory(const ProfileGroup& group, size_t member,
                                const GroupShape& shape) {
  const uint64_t channels = group.tensors[member].channels;
  // Values, as pairs and sums too, and angles, for elements of one byte; and
  // tokens, and a strip of each.
  constexpr uint64_t kOfElement = 4 * sizeof(float);
  constexpr uint64_t kOfToken =
      sizeof(kernels::SparseToken) + 2 * kStripColumns * sizeof(float);
  // The matrix of a head, twice.
  return kPiece * kOfElement + (kPiece / channels + 1) * kOfToken +
         (channels + kStripColumns) *
             (2 * sizeof(int16_t) * (group.components + 1) + kOfChannel) +
         (shape.exact ? ResidualReader::Memory(channels) : 0);
}

MemberRestorer::MemberRestorer(std::shared_ptr<const GroupQuanta> quanta,
                               size_t member)
    : quanta_(std::move(quanta)),
      member_(member),
      tensor_(quanta_->group().tensors[member]),
      dtype_(quanta_->shape().dtypes[member]),
      exceptions_(quanta_->ExceptionsOf(member), dtype_) {
  for (size_t i = 0; i < member; ++i) {
    first_channel_ += quanta_->group().tensors[i].width();
    first_head_ += quanta_->group().tensors[i].heads;
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
  const size_t first = first_channel_ + head * channels;
  const size_t strips = (channels + kStripColumns - 1) / kStripColumns;
  basis_.clear();
  factor_.clear();
  scales_.assign(strips * kStripColumns, 0);
  means_.assign(strips * kStripColumns, 0);
  const float unit = quanta_->UnitOf(member_);
  for (size_t i = 0; i < channels; ++i) {
    scales_[i] = group.scales[first + i] * unit;
    means_[i] = group.means[first + i];
  }
  if (quanta_->right_tiles() == nullptr) TakeBasis();
}

void MemberRestorer::TakeBasis() {
  const ProfileGroup& group = quanta_->group();
  const size_t channels = tensor_.channels;
  const size_t first = first_channel_ + head_ * channels;
  const size_t strips = (channels + kStripColumns - 1) / kStripColumns;
  // Few tokens may use few components of a large matrix.
  const size_t components = quanta_->components_end();
  basis_.resize(strips * components * kStripColumns);
  for (size_t s = 0; s < strips; ++s) {
    const size_t column = s * kStripColumns;
    const size_t columns = std::min(kStripColumns, channels - column);
    const int16_t* from = &group.decode[first + column];
    // Where nothing is used there is none.
    int16_t* to = basis_.data() + s * components * kStripColumns;
    for (size_t j = 0; j < components; ++j, to += kStripColumns) {
      std::memcpy(to, from + j * group.channels(), columns * sizeof(int16_t));
    }
  }
}

void MemberRestorer::RestoreTokens(uint64_t token, size_t count,
                                   float* values) {
  for (const uint64_t end = token + count; token < end;) {
    const GroupQuanta::Run run = quanta_->RunAt(token, end - token);
    RestoreRun(token, run, values);
    token += run.count;
    values += run.count * tensor_.channels;
  }
}

const int16_t* MemberRestorer::Factor() {
  if (!factor_.empty()) return factor_.data();
  const size_t components = quanta_->components_end();
  const size_t columns = scales_.size();
  factor_.assign(quanta_->inner_end() * columns, 0);
  const size_t used = std::min(quanta_->inner_end(), components);
  for (size_t i = 0; i < columns; i += kStripColumns) {
    const int16_t* row = &basis_[i * components];
    for (size_t j = 0; j < used; ++j, row += kStripColumns) {
      int16_t* const to = &factor_[(j / 2 * columns + i) * 2 + j % 2];
      for (size_t k = 0; k < kStripColumns; ++k) to[2 * k] = row[k];
    }
  }
  return factor_.data();
}

void MemberRestorer::RestoreTiles(uint64_t token, const GroupQuanta::Run& run,
                                  float* values) {
  const size_t channels = tensor_.channels;
  token_units_.resize(run.count);
  for (size_t t = 0; t < run.count; ++t) {
    token_units_[t] = quanta_->UnitAt(token + t);
  }
  const RestoringTiles& right = *quanta_->right_tiles();
  quanta_->tile_kernels()->restore({.low = run.tiles->low(),
                                    .high = run.tiles->high(),
                                    .first = run.first,
                                    .count = run.count,
                                    .right = right.OfHead(first_head_ + head_),
                                    .right_tiles = right.inner_tiles(),
                                    .columns = channels,
                                    .units = token_units_.data(),
                                    .scales = scales_.data(),
                                    .means = means_.data(),
                                    .values = values,
                                    .stride = channels});
  if (run.tiles->all_narrow()) return;
  if (basis_.empty()) TakeBasis();
  RestoreWideOf(token, run.count, values);
}

void MemberRestorer::RestoreRun(uint64_t token, const GroupQuanta::Run& run,
                                float* values) {
  if (run.tiles != nullptr) {
    RestoreTiles(token, run, values);
    return;
  }
  const size_t channels = tensor_.channels;
  const size_t columns = scales_.size();
  bool all_narrow = true;
  tokens_.resize(run.count);
  for (size_t t = 0; t < run.count; ++t) {
    const TokenQuanta sparse = quanta_->TokenAt(token + t);
    tokens_[t] = sparse.ForKernels();
    if (sparse.narrow()) continue;
    tokens_[t].count = 0;
    all_narrow = false;
  }
  if (run.inner > 0) {
    product_.resize(run.count * columns);
    kernels::Active().multiply(
        run.dense, Factor(),
        {.rows = run.count, .inner = run.inner, .columns = columns},
        product_.data());
  }
  const auto restore = kernels::Active().joint->restore_strip;
  const int16_t* strip = basis_.data();
  for (size_t i = 0; i < channels; i += kStripColumns) {
    const size_t width = std::min(kStripColumns, channels - i);
    const kernels::StripFinish finish = {
        .scales = &scales_[i],
        .means = &means_[i],
        .more = run.inner > 0 ? &product_[i] : nullptr,
        .more_stride = columns};
    if (width == kStripColumns) {
      restore(strip, tokens_.data(), run.count, finish, channels, values + i);
    } else {
      strip_.resize(run.count * kStripColumns);
      restore(strip, tokens_.data(), run.count, finish, kStripColumns,
              strip_.data());
      for (size_t t = 0; t < run.count; ++t) {
        std::copy_n(&strip_[t * kStripColumns], width,
                    values + t * channels + i);
      }
    }
    strip += quanta_->components_end() * kStripColumns;
  }
  if (!all_narrow) RestoreWideOf(token, run.count, values);
}

void MemberRestorer::RestoreWideOf(uint64_t token, size_t count,
                                   float* values) {
  for (size_t t = 0; t < count; ++t) {
    const TokenQuanta sparse = quanta_->TokenAt(token + t);
    if (!sparse.narrow()) RestoreWide(sparse, values + t * tensor_.channels);
  }
}

void MemberRestorer::RestoreWide(const TokenQuanta& token, float* values) {
  const size_t components = quanta_->components_end();
  const size_t channels = tensor_.channels;
  const int16_t* strip = basis_.data();
  for (size_t first = 0; first < channels; first += kStripColumns) {
    int64_t sums[kStripColumns] = {};
    for (size_t k = 0; k < token.size(); ++k) {
      const int64_t quantum = token.quantum(k);
      const int16_t* const row = strip + token.component(k) * kStripColumns;
      for (size_t i = 0; i < kStripColumns; ++i) sums[i] += quantum * row[i];
    }
    const size_t columns = std::min(kStripColumns, channels - first);
    for (size_t i = 0; i < columns; ++i) {
      const float scale = token.unit() * scales_[first + i];
      values[first + i] =
          static_cast<float>(sums[i]) * scale + means_[first + i];
    }
    strip += components * kStripColumns;
  }
}

void MemberRestorer::Turn(uint64_t first, size_t count, float* values) {
  const ProfileRotation& rotation =
      quanta_->content().rotations[*tensor_.rotation];
  const uint64_t position = quanta_->header().first_position + first;
  const auto table = quanta_->TableAt(*tensor_.rotation, position, count);
  RotateHead(rotation, table->data(), count, tensor_.channels, /*back=*/false,
             &pairs_, values);
}

uint64_t MemberRestorer::ElementAt(uint64_t batch, uint64_t head,
                                   uint64_t token) const {
  return ((batch * tensor_.heads + head) * quanta_->shape().tokens + token) *
         tensor_.channels;
}

absl::Status MemberRestorer::Restore(uint64_t batch, uint64_t head,
                                     uint64_t first, size_t count,
                                     uint8_t* elements) {
  const Residuals* const residuals = quanta_->ResidualsOf(member_);
  if (residuals == nullptr) {
    RestoreCoded(batch, head, first, count, elements);
    exceptions_.Apply(ElementAt(batch, head, first), count * tensor_.channels,
                      elements);
    return absl::OkStatus();
  }
  const size_t row = tensor_.channels * DTypeSize(dtype_);
  const uint64_t in_block = residuals->shape().block_tokens();
  for (const uint64_t end = first + count; first < end;) {
    KVC_ASSIGN_OR_RETURN(const uint8_t* const block,
                         RestoreBlock(batch, head, first / in_block));
    const uint64_t skipped = first % in_block;
    const uint64_t some = std::min(in_block - skipped, end - first);
    std::memcpy(elements, block + skipped * row, some * row);
    elements += some * row;
    first += some;
  }
  return absl::OkStatus();
}

absl::StatusOr<const uint8_t*> MemberRestorer::RestoreBlock(uint64_t batch,
                                                            uint64_t head,
                                                            uint64_t block) {
  const Residuals& residuals = *quanta_->ResidualsOf(member_);
  const ResidualShape& shape = residuals.shape();
  const uint64_t in_batches = batch * tensor_.heads + head;
  const uint64_t number = in_batches * shape.blocks_of_head() + block;
  if (number == block_number_) return block_.data();
  block_number_ = UINT64_MAX;
  const size_t row = tensor_.channels * DTypeSize(dtype_);
  const uint64_t begin = block * shape.block_tokens();
  const uint64_t end = std::min(begin + shape.block_tokens(), shape.tokens);
  block_.resize((end - begin) * row);
  const size_t at_once = tokens_at_once();
  for (uint64_t token = begin; token < end; token += at_once) {
    RestoreCoded(batch, head, token, std::min<uint64_t>(at_once, end - token),
                 &block_[(token - begin) * row]);
  }
  KVC_RETURN_IF_ERROR(
      residuals_.Apply(residuals, in_batches, block, block_.data()));
  block_number_ = number;
  return block_.data();
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
  RestoreTokens(batch * quanta_->shape().tokens + first + coded, count - coded,
                &values_[coded * channels]);
  float* const values = &values_[coded * channels];
  if (tensor_.rotation) Turn(first + coded, count - coded, values);
  StoreElements(dtype_, absl::MakeConstSpan(values, (count - coded) * channels),
                elements + coded * row);
}

}  // namespace kvcompress::profile
