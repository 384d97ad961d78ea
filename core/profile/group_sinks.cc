// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_sinks.h"

#include <algorithm>
#include <cstddef>
#include <mutex>

#include "kernels/elements.h"
#include "kvcompress/dtype.h"

namespace kvcompress::profile {
namespace {

// The part of the usual length that values of a sink have at most. Sinks of
// SmolLM2, Gemma 3 and Qwen2.5 have up to 0.3 of it, and others from 0.58 on.
constexpr float kShort = 0.4f;
constexpr uint64_t kFewestTokens = 40;
constexpr size_t kLanes = 16;
// Quarter octaves that steps of sinks are finer: 8 quarter octaves leave a bit
// more of the damage on Gemma 3, and 16 no less.
constexpr int kFiner = 12;
constexpr int kMaxOffset = 48;

float Squares(absl::Span<const float> values) {
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += values[i + lane] * values[i + lane];
    }
  }
  float sum = 0;
  for (; i < values.size(); ++i) sum += values[i] * values[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

// The squared lengths of the tokens of a batch, over all heads.
std::vector<float> LengthsOf(const ProfileTensor& tensor, DType dtype,
                             uint64_t batch, uint64_t tokens,
                             absl::string_view source) {
  std::vector<float> lengths(tokens);
  const size_t row = tensor.channels * DTypeSize(dtype);
  std::vector<float> values(tensor.channels);
  for (uint64_t head = 0; head < tensor.heads; ++head) {
    const uint64_t first = (batch * tensor.heads + head) * tokens;
    for (uint64_t t = 0; t < tokens; ++t) {
      LoadElements(
          dtype,
          reinterpret_cast<const uint8_t*>(source.data()) + (first + t) * row,
          absl::MakeSpan(values));
      lengths[t] += Squares(values);
    }
  }
  return lengths;
}

}  // namespace

std::vector<uint64_t> FindSinks(const ProfileGroup& group,
                                const GroupShape& shape,
                                absl::Span<const absl::string_view> sources,
                                Workers* workers, Checkpoint* checkpoint) {
  std::vector<uint64_t> sinks;
  if (shape.tokens < kFewestTokens) return sinks;
  std::vector<size_t> values;
  for (size_t i = 0; i < group.tensors.size(); ++i) {
    if (group.tensors[i].role == TensorRole::kValue) values.push_back(i);
  }
  std::vector<bool> found(shape.tokens);
  for (uint64_t batch = 0; batch < shape.batches; ++batch) {
    std::vector<uint16_t> short_in(shape.tokens);  // tensors
    std::mutex counting;
    const absl::Status status = TryForEach(
        workers, values.size(), checkpoint, [&](size_t index, Checkpoint*) {
          const size_t i = values[index];
          const std::vector<float> lengths =
              LengthsOf(group.tensors[i], shape.dtypes[i], batch, shape.tokens,
                        sources[i]);
          std::vector<float> sorted = lengths;
          const auto middle =
              sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
          std::nth_element(sorted.begin(), middle, sorted.end());
          const float most = kShort * kShort * *middle;
          const std::lock_guard<std::mutex> lock(counting);
          for (uint64_t t = 0; t < shape.tokens; ++t) {
            if (lengths[t] < most) ++short_in[t];
          }
          return absl::OkStatus();
        });
    if (!status.ok()) return {};
    for (uint64_t t = 0; t < shape.tokens; ++t) {
      if (2 * short_in[t] > values.size()) found[t] = true;
    }
  }
  for (uint64_t t = 0; t < shape.tokens; ++t) {
    if (found[t]) sinks.push_back(t);
  }
  return sinks;
}

void RefineSinks(absl::Span<const uint64_t> sinks, uint64_t tokens,
                 std::vector<int8_t>* offsets) {
  if (sinks.empty()) return;
  offsets->resize(tokens);
  for (const uint64_t sink : sinks) {
    int8_t& offset = (*offsets)[sink];
    offset = static_cast<int8_t>(std::min(offset + kFiner, kMaxOffset));
  }
}

}  // namespace kvcompress::profile
