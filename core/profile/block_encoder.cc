// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/block_encoder.h"

#include <algorithm>
#include <cmath>

#include "coding/strip.h"
#include "entropy/rans.h"
#include "kernels/kernels.h"
#include "quantization/decision_thresholds.h"
#include "quantization/steps.h"

namespace kvcompress::profile {
namespace {

using coding::kMaxLanes;

// Runs of a block that are coded between two looks at the checkpoint: some
// 2^18 symbols.
constexpr size_t kRunsAtOnce = 32;

// Components below this at all tokens of a block, in steps, are zeros: the
// first quantum that is none has a level of 1 at least.
constexpr float kLeastLevel = 0.5f;

}  // namespace

BlockEncoder::BlockEncoder(const BlockSource& source, Checkpoint* checkpoint)
    : group_(source.content.groups[source.encoding.group]),
      encoding_(source.encoding),
      step_(source.content.presets[encoding_.preset].step),
      classes_(absl::MakeConstSpan(group_.classes)
                   .subspan(encoding_.preset * group_.components,
                            group_.components)),
      checkpoint_(checkpoint),
      given_(source.projection),
      zeros_(group_.components),
      threshold_offsets_(group_.components) {
  if (given_ != nullptr) return;
  projector_.emplace(source.content, encoding_.group, source.shape,
                     source.sources, encoding_.first_position, source.basis,
                     checkpoint, encoding_.units);
}

uint64_t BlockEncoder::MaxMemory(const ProfileGroup& group) {
  // Of a component of a token: projected, quantum, row, words, and what of the
  // block is in the payload.
  constexpr uint64_t kEach = 16;
  return kEach * kMaxBlockTokens * group.components +
         GroupProjector::MaxMemory(group);
}

void BlockEncoder::Append(uint64_t batch, uint64_t first, size_t count,
                          std::string* payload, float* squares) {
  Quantize(batch, first, count, squares);
  const size_t components = group_.components;
  size_t last = 0;  // behind the last component that is not all zeros
  for (size_t t = 0; t < count; ++t) {
    const int32_t* const row = &quanta_[t * components];
    size_t end = components;
    while (end > last && row[end - 1] == 0) --end;
    last = std::max(last, end);
  }
  const size_t runs = (last + kMaxLanes - 1) / kMaxLanes;
  coding::SymbolWriter writer(&rows_);
  for (size_t run = 0; run < runs; ++run) {
    if (run % kRunsAtOnce == 0 && Stops(checkpoint_)) return;
    AppendRun(run * kMaxLanes, first, count, &writer);
  }
  writer.Finish();
  const coding::RansStream stream =
      coding::RansEncode(writer.rows(), kMaxLanes, &words_);
  GroupBlockHeader header;
  header.words = static_cast<uint32_t>(stream.words.size());
  header.escapes = static_cast<uint32_t>(writer.escapes().size());
  header.runs = static_cast<uint16_t>(runs);
  header.size = static_cast<uint32_t>(
      kGroupBlockHeaderSize + kStatesSize + 2 * stream.words.size() +
      writer.escapes().size() + writer.low_bits().size());
  WriteGroupBlockHeader(header, payload);
  AppendNumbers(absl::MakeConstSpan(stream.states), payload);
  AppendNumbers(stream.words, payload);
  payload->append(writer.escapes());
  payload->append(writer.low_bits());
}

const float* BlockEncoder::Project(uint64_t batch, uint64_t first,
                                   size_t count) {
  if (given_ != nullptr) return given_->At(batch, first);
  projected_.resize(count * group_.components);
  projector_->Project(batch, first, count, projected_.data());
  return projected_.data();
}

void BlockEncoder::Quantize(uint64_t batch, uint64_t first, size_t count,
                            float* squares) {
  quanta_.resize(count * group_.components);
  const float* const projected = Project(batch, first, count);
  if (Stops(checkpoint_)) return;
  // The projector has divided by units already.
  const float of_all = given_ == nullptr || encoding_.units.empty()
                           ? 1
                           : encoding_.units.front();
  if (encoding_.error_per_bit) {
    QuantizeByTrellis(projected, step_ * of_all, first, count);
  } else {
    QuantizeByThresholds(projected, step_ * of_all, first, count);
  }
  if (squares != nullptr) {
    MeasureSquares(projected, of_all, first, count, squares);
  }
}

void BlockEncoder::QuantizeByThresholds(const float* projected, float step,
                                        uint64_t first, size_t count) {
  for (size_t begin = 0; begin < count;) {
    const int offset = OffsetOf(first + begin);
    size_t end = begin + 1;
    while (end < count && OffsetOf(first + end) == offset) ++end;
    for (size_t j = 0; j < group_.components; ++j) {
      threshold_offsets_[j] = coding::DecisionThresholds::Begin(
          ClassAt(classes_[j], encoding_.shift, offset));
    }
    const float unit = step * coding::StepFactor(offset);
    kernels::Active().rows.quantize(
        projected + begin * group_.components, end - begin, group_.components,
        {.inverse = 1 / unit,
         .means = zeros_.data(),
         .thresholds = coding::GetDecisionThresholds().values.data(),
         .threshold_offsets = threshold_offsets_.data()},
        &quanta_[begin * group_.components]);
    begin = end;
  }
}

void BlockEncoder::QuantizeByTrellis(const float* projected, float step,
                                     uint64_t first, size_t count) {
  const size_t components = group_.components;
  std::vector<float> inverses(count);
  for (size_t t = 0; t < count; ++t) {
    inverses[t] = 1 / (step * coding::StepFactor(OffsetOf(first + t)));
  }
  std::vector<coding::TrellisInput> inputs(count);
  std::vector<int32_t> found(count);
  for (size_t j = 0; j < components; ++j) {
    if (j % kMaxLanes == 0 && Stops(checkpoint_)) return;
    float largest = 0;
    for (size_t t = 0; t < count; ++t) {
      inputs[t].exact = projected[t * components + j] * inverses[t];
      largest = std::max(largest, std::abs(inputs[t].exact));
    }
    if (largest < kLeastLevel) {
      std::fill(found.begin(), found.end(), 0);
    } else {
      for (size_t t = 0; t < count; ++t) {
        inputs[t].klass =
            ClassAt(classes_[j], encoding_.shift, OffsetOf(first + t));
        inputs[t].error_per_bit = *encoding_.error_per_bit;
      }
      trellis_.Quantize(inputs, found.data());
    }
    for (size_t t = 0; t < count; ++t) {
      quanta_[t * components + j] = found[t];
    }
  }
}

void BlockEncoder::MeasureSquares(const float* projected, float of_all,
                                  uint64_t first, size_t count,
                                  float* squares) const {
  const bool trellis = encoding_.error_per_bit.has_value();
  const float level_size = trellis ? of_all / 2 : of_all;
  std::vector<uint8_t> states(group_.components);
  const int32_t* quantum = quanta_.data();
  for (size_t t = 0; t < count; ++t) {
    const float inverse = 1 / (step_ * coding::StepFactor(OffsetOf(first + t)));
    float sum = 0;
    for (uint8_t& state : states) {
      const int32_t level =
          trellis ? coding::LevelOf(*quantum, coding::IsOddState(state))
                  : *quantum;
      state = coding::NextState(state, *quantum++);
      const float error =
          *projected++ * inverse - static_cast<float>(level) * level_size;
      sum += error * error;
    }
    squares[t] = sum;
  }
}

void BlockEncoder::AppendRun(size_t begin, uint64_t first, size_t count,
                             coding::SymbolWriter* writer) const {
  const size_t components = group_.components;
  const size_t lanes = std::min(kMaxLanes, components - begin);
  uint16_t* row = writer->AddRows(count, lanes).data();
  size_t end = 0;  // of tokens that are coded alike
  coding::LaneCoding at;
  const bool trellis = encoding_.error_per_bit.has_value();
  uint8_t states[kMaxLanes] = {};
  for (size_t t = 0; t < count;) {
    if (t == end) {
      const int offset = OffsetOf(first + t);
      while (end < count && OffsetOf(first + end) == offset) ++end;
      at = coding::LaneCoding();
      for (size_t lane = 0; lane < lanes; ++lane) {
        at.Set(lane, coding::SplitClass(ClassAt(classes_[begin + lane],
                                                encoding_.shift, offset)));
      }
    }
    const int32_t* const quanta = &quanta_[t * components + begin];
    if (!trellis && at.low_lanes == 0) {
      const size_t done = kernels::Active().rows.code(
          quanta, {.rows = end - t, .columns = lanes, .stride = components},
          at.base, at.most, row);
      t += done;
      row += done * kMaxLanes;
      if (done > 0) continue;
    }
    for (size_t lane = 0; lane < lanes; ++lane) {
      const bool odd = trellis && coding::IsOddState(states[lane]);
      states[lane] = coding::NextState(states[lane], quanta[lane]);
      row[lane] =
          writer->Code(at.Table(lane, odd), quanta[lane], at.low_counts[lane]);
    }
    ++t;
    row += kMaxLanes;
  }
}

}  // namespace kvcompress::profile
