// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_encoder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/elements.h"
#include "profile/block_encoder.h"
#include "profile/prepared_basis.h"
#include "quantization/int8.h"

namespace kvcompress::profile {
namespace {

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

// The first tokens of each head, which are not transformed.
void AppendSinks(const ProfileGroup& group, const GroupShape& shape,
                 absl::Span<const absl::string_view> sources, size_t sinks,
                 Checkpoint* checkpoint, std::string* payload) {
  std::vector<float> values;
  for (size_t i = 0; i < group.tensors.size(); ++i) {
    const ProfileTensor& tensor = group.tensors[i];
    const size_t size = DTypeSize(shape.dtypes[i]);
    values.resize(tensor.channels);
    for (uint64_t head = 0; head < shape.batches * tensor.heads; ++head) {
      if (Stops(checkpoint)) return;
      for (uint64_t t = 0; t < sinks; ++t) {
        const uint64_t element = (head * shape.tokens + t) * tensor.channels;
        LoadElements(shape.dtypes[i],
                     reinterpret_cast<const uint8_t*>(sources[i].data()) +
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

// First tokens that are not transformed, where the cache begins with its text:
// the first, and those up to another sink near it.
uint64_t IntegerSinks(const GroupEncoding& encoding, uint64_t tokens) {
  constexpr uint64_t kMost = 8;
  if (encoding.first_position != 0) return 0;
  uint64_t count = 1;
  for (const uint64_t sink : encoding.sinks) {
    if (sink < kMost) count = sink + 1;
  }
  return std::min(count, tokens);
}

}  // namespace

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

void AddResiduals(absl::Span<const std::string> residuals,
                  std::string* payload) {
  for (const std::string& each : residuals) {
    const uint64_t size = each.size();
    AppendNumbers(absl::MakeConstSpan(&size, 1), payload);
    payload->append(each);
  }
  MarkResiduals(payload);
}

void EncodeGroup(const std::shared_ptr<const Profile>& profile,
                 const GroupEncoding& encoding, const GroupShape& shape,
                 absl::Span<const absl::string_view> sources, Workers* workers,
                 Checkpoint* checkpoint, std::string* payload,
                 const GroupProjection* projection, double* squares) {
  const ProfileContent& content = profile->content();
  const uint64_t sinks = IntegerSinks(encoding, shape.tokens);
  const std::string runs = OffsetRuns(encoding.offsets);
  WriteGroupHeader(
      {.units = !encoding.units.empty(),
       .trellis = encoding.error_per_bit.has_value(),
       .group = static_cast<uint16_t>(encoding.group),
       .preset = static_cast<uint8_t>(encoding.preset),
       .shift = encoding.shift,
       .sinks = static_cast<uint8_t>(sinks),
       .first_position = encoding.first_position,
       .step = content.presets[encoding.preset].step,
       .block_tokens = static_cast<uint16_t>(encoding.block_tokens),
       .offset_bytes = static_cast<uint32_t>(runs.size())},
      payload);
  AppendNumbers(absl::MakeConstSpan(encoding.units), payload);
  payload->append(runs);
  if (sinks > 0) {
    AppendSinks(content.groups[encoding.group], shape, sources, sinks,
                checkpoint, payload);
  }

  BlockSource source = {.content = content,
                        .encoding = encoding,
                        .shape = shape,
                        .sources = sources,
                        .projection = projection};
  if (projection == nullptr) {
    source.basis = PreparedBasisOf(profile, encoding.group, checkpoint);
  }
  BlockEncoder own(source, checkpoint);
  AtPlaces<BlockEncoder> encoders(workers, &own, checkpoint, [&](auto* of) {
    return std::make_unique<BlockEncoder>(source, of);
  });
  const uint64_t tokens = shape.tokens - sinks;  // of a batch
  const uint64_t most = encoding.block_tokens;
  const size_t in_batch = (tokens + most - 1) / most;
  std::vector<std::string> blocks(shape.batches * in_batch);
  std::vector<float> errors(squares != nullptr ? shape.batches * tokens : 0);
  ForEach(workers, blocks.size(), [&](size_t i, size_t place) {
    const uint64_t batch = i / in_batch;
    const uint64_t first = i % in_batch * most;
    const size_t count = std::min(most, tokens - first);
    encoders[place].Append(
        batch, sinks + first, count, &blocks[i],
        squares != nullptr ? &errors[batch * tokens + first] : nullptr);
  });
  // Others may have left out blocks since it was asked here.
  if (Stops(checkpoint)) return;
  for (std::string& block : blocks) {
    payload->append(std::exchange(block, std::string()));
  }
  if (squares == nullptr) return;
  // In this order, so that the sum does not depend on who worked.
  *squares = 0;
  for (const float error : errors) *squares += error;
}

}  // namespace kvcompress::profile
