// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_encoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "coding/strip.h"
#include "entropy/rans.h"
#include "entropy/symbol_writer.h"
#include "kernels/elements.h"
#include "kernels/kernels.h"
#include "profile/prepared_basis.h"
#include "profile/projector.h"
#include "quantization/decision_thresholds.h"
#include "quantization/int8.h"
#include "quantization/steps.h"
#include "quantization/trellis.h"

namespace kvcompress::profile {
namespace {

using coding::kMaxLanes;

// Runs of a block that are coded between two looks at the checkpoint: some
// 2^18 symbols.
constexpr size_t kRunsAtOnce = 32;

// Components below this at all tokens of a block, in steps, are zeros: the
// first quantum that is none has a level of 1 at least.
constexpr float kLeastLevel = 0.5f;

template <typename T>
void AppendNumbers(absl::Span<const T> numbers, std::string* out) {
  out->append(reinterpret_cast<const char*>(numbers.data()),
              numbers.size() * sizeof(T));
}

std::string OffsetRuns(absl::Span<const int8_t> offsets) {
  std::string runs;
  for (size_t begin = 0; begin < offsets.size();) {
    size_t end = begin + 1;
    while (end < offsets.size() && offsets[end] == offsets[begin] &&
           end - begin < std::numeric_limits<uint16_t>::max()) {
      ++end;
    }
    const auto count = static_cast<uint16_t>(end - begin);
    AppendNumbers(absl::MakeConstSpan(&count, 1), &runs);
    runs.push_back(static_cast<char>(offsets[begin]));
    begin = end;
  }
  return runs;
}

class Encoder {
 public:
  Encoder(const std::shared_ptr<const Profile>& profile,
          const GroupEncoding& encoding, const GroupShape& shape,
          absl::Span<const absl::string_view> sources, Checkpoint* checkpoint,
          const GroupProjection* given, double* squares)
      : group_(profile->content().groups[encoding.group]),
        encoding_(encoding),
        shape_(shape),
        sources_(sources),
        step_(profile->content().presets[encoding.preset].step),
        classes_(absl::MakeConstSpan(group_.classes)
                     .subspan(encoding.preset * group_.components,
                              group_.components)),
        sinks_(
            std::min<uint64_t>(SinksAt(encoding.first_position), shape.tokens)),
        checkpoint_(checkpoint),
        given_(given),
        squares_(squares),
        gatherer_(profile->content(), encoding.group, shape, sources,
                  encoding.first_position, checkpoint),
        zeros_(group_.components),
        threshold_offsets_(group_.components) {
    if (given_ != nullptr) return;
    projector_.emplace(group_,
                       PreparedBasisOf(profile, encoding.group, checkpoint),
                       checkpoint, encoding.units);
  }

  void Encode(std::string* payload) {
    if (squares_ != nullptr) *squares_ = 0;
    const std::string runs = OffsetRuns(encoding_.offsets);
    WriteGroupHeader({.units = !encoding_.units.empty(),
                      .trellis = encoding_.error_per_bit.has_value(),
                      .group = static_cast<uint16_t>(encoding_.group),
                      .preset = static_cast<uint8_t>(encoding_.preset),
                      .shift = encoding_.shift,
                      .sinks = static_cast<uint8_t>(sinks_),
                      .first_position = encoding_.first_position,
                      .step = step_,
                      .offset_bytes = static_cast<uint32_t>(runs.size())},
                     payload);
    AppendNumbers(absl::MakeConstSpan(encoding_.units), payload);
    payload->append(runs);
    if (sinks_ > 0) AppendSinks(payload);
    for (uint64_t batch = 0; batch < shape_.batches; ++batch) {
      for (uint64_t t = sinks_; t < shape_.tokens;) {
        if (Stops(checkpoint_)) return;
        const size_t count =
            std::min<uint64_t>(kMaxBlockTokens, shape_.tokens - t);
        AppendBlock(batch, t, count, payload);
        t += count;
      }
    }
  }

 private:
  void AppendSinks(std::string* payload) {
    std::vector<float> values;
    for (size_t i = 0; i < group_.tensors.size(); ++i) {
      const ProfileTensor& tensor = group_.tensors[i];
      const size_t size = DTypeSize(shape_.dtypes[i]);
      values.resize(tensor.channels);
      for (uint64_t head = 0; head < shape_.batches * tensor.heads; ++head) {
        if (Stops(checkpoint_)) return;
        for (uint64_t t = 0; t < sinks_; ++t) {
          const uint64_t element = (head * shape_.tokens + t) * tensor.channels;
          LoadElements(shape_.dtypes[i],
                       reinterpret_cast<const uint8_t*>(sources_[i].data()) +
                           element * size,
                       absl::MakeSpan(values));
          const uint16_t scale = coding::Int8Scale::For(values);
          AppendNumbers(absl::MakeConstSpan(&scale, 1), payload);
          for (const float value : values) {
            payload->push_back(
                static_cast<char>(coding::Int8Scale::Quantize(value, scale)));
          }
        }
      }
    }
  }

  int OffsetOf(uint64_t token) const {
    return encoding_.offsets.empty() ? 0 : encoding_.offsets[token];
  }

  // The components of tokens [first, first + count).
  const float* Project(uint64_t batch, uint64_t first, size_t count) {
    if (given_ != nullptr) return given_->At(batch, first);
    values_.resize(kTokensAtOnce * group_.channels());
    projected_.resize(count * group_.components);
    for (size_t t = 0; t < count; t += kTokensAtOnce) {
      const size_t some = std::min(kTokensAtOnce, count - t);
      gatherer_.Gather(batch, first + t, some, values_.data());
      projector_->Project(some, values_.data(),
                          &projected_[t * group_.components]);
      if (Stops(checkpoint_)) break;
    }
    return projected_.data();
  }

  // Quanta of tokens [first, first + count) to quanta_.
  void Quantize(uint64_t batch, uint64_t first, size_t count) {
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
    if (squares_ != nullptr) AddSquares(projected, of_all, first, count);
  }

  void QuantizeByThresholds(const float* projected, float step, uint64_t first,
                            size_t count) {
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

  // Of quanta in steps of `of_all` times the preset's.
  void AddSquares(const float* projected, float of_all, uint64_t first,
                  size_t count) {
    const bool trellis = encoding_.error_per_bit.has_value();
    const float level_size = trellis ? of_all / 2 : of_all;
    std::vector<uint8_t> states(group_.components);
    const int32_t* quantum = quanta_.data();
    for (size_t t = 0; t < count; ++t) {
      const float inverse =
          1 / (step_ * coding::StepFactor(OffsetOf(first + t)));
      float squares = 0;
      for (uint8_t& state : states) {
        const int32_t level =
            trellis ? coding::LevelOf(*quantum, coding::IsOddState(state))
                    : *quantum;
        state = coding::NextState(state, *quantum++);
        const float error =
            *projected++ * inverse - static_cast<float>(level) * level_size;
        squares += error * error;
      }
      *squares_ += squares;
    }
  }

  void QuantizeByTrellis(const float* projected, float step, uint64_t first,
                         size_t count) {
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

  // Codes up to kMaxLanes components of a block.
  void AppendRun(size_t begin, uint64_t first, size_t count,
                 coding::SymbolWriter* writer) {
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
        row[lane] = writer->Code(at.Table(lane, odd), quanta[lane],
                                 at.low_counts[lane]);
      }
      ++t;
      row += kMaxLanes;
    }
  }

  void AppendBlock(uint64_t batch, uint64_t first, size_t count,
                   std::string* payload) {
    Quantize(batch, first, count);
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

  const ProfileGroup& group_;
  const GroupEncoding& encoding_;
  const GroupShape& shape_;
  const absl::Span<const absl::string_view> sources_;
  const float step_;
  const absl::Span<const uint8_t> classes_;  // of the preset
  const size_t sinks_;
  Checkpoint* const checkpoint_;
  const GroupProjection* const given_;
  double* const squares_;
  TokenGatherer gatherer_;
  std::optional<Projector> projector_;  // where none is given
  const std::vector<float> zeros_;
  std::vector<int32_t> threshold_offsets_;  // of each component
  coding::TrellisEncoder trellis_;
  // Of a block, [tokens, ..].
  std::vector<float> values_;
  std::vector<float> projected_;
  std::vector<int32_t> quanta_;
  std::vector<uint16_t> rows_;
  std::vector<uint16_t> words_;
};

}  // namespace

size_t SinksAt(uint64_t first_position) { return first_position == 0 ? 1 : 0; }

void AddExceptions(absl::Span<const std::string> lists, std::string* payload) {
  uint64_t bytes = 0;
  for (const std::string& list : lists) {
    const auto size = static_cast<uint32_t>(list.size());
    AppendNumbers(absl::MakeConstSpan(&size, 1), payload);
    payload->append(list);
    bytes += sizeof(size) + list.size();
  }
  MarkExceptions(static_cast<uint32_t>(bytes), payload);
}

void EncodeGroup(const std::shared_ptr<const Profile>& profile,
                 const GroupEncoding& encoding, const GroupShape& shape,
                 absl::Span<const absl::string_view> sources,
                 Checkpoint* checkpoint, std::string* payload,
                 const GroupProjection* projection, double* squares) {
  Encoder(profile, encoding, shape, sources, checkpoint, projection, squares)
      .Encode(payload);
}

}  // namespace kvcompress::profile
