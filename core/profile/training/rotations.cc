// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/training/rotations.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/elements.h"
#include "kvcompress/error.h"
#include "quantization/rope.h"
#include "quantization/rope_candidates.h"
#include "status/macros.h"

namespace kvcompress::profile {

absl::Status FindRotations(TrainingCache* cache,
                           std::optional<double> rope_theta,
                           ProfileContent* content) {
  if (rope_theta == 0.0) return absl::OkStatus();
  using Key = std::pair<std::pair<uint64_t, bool>, size_t>;  // and pairs
  std::map<Key, size_t> counts;
  std::map<uint32_t, Key> found;
  for (size_t index = 0; index < cache->tensors().size(); ++index) {
    const TensorSpec& spec = cache->tensors()[index];
    if (spec.role != TensorRole::kKey || !spec.layer) continue;
    const size_t rank = spec.shape.size();
    KVC_ASSIGN_OR_RETURN(const std::string bytes, cache->Read(index));
    std::vector<float> values(bytes.size() / DTypeSize(spec.dtype));
    LoadElements(spec.dtype, reinterpret_cast<const uint8_t*>(bytes.data()),
                 absl::MakeSpan(values));
    const size_t channels = spec.shape[rank - 1];
    const std::optional<coding::FoundRotation> rotation =
        coding::DetectRotation(
            values.data(), spec.shape[rank - 3], spec.shape[rank - 2], channels,
            coding::CandidatesFor(spec, TensorRole::kKey,
                                  {.rope_theta = rope_theta}, channels));
    if (!rotation || rotation->rotation.first != 0) continue;
    const Key key{{rotation->rotation.ratio, rotation->rotation.interleaved},
                  rotation->rotation.Pairs(channels)};
    ++counts[key];
    found[*spec.layer] = key;
  }
  if (counts.empty()) return absl::OkStatus();
  std::map<Key, size_t> indices;
  for (const auto& [key, count] : counts) {
    indices[key] = content->rotations.size();
    content->rotations.push_back({.interleaved = key.first.second,
                                  .increments = coding::Increments(
                                      {.ratio = key.first.first}, key.second)});
  }
  const auto most = std::max_element(
      counts.begin(), counts.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  for (ProfileGroup& group : content->groups) {
    for (ProfileTensor& tensor : group.tensors) {
      if (tensor.role != TensorRole::kKey) continue;
      const auto own = found.find(tensor.layer);
      const Key& key = own == found.end() ? most->first : own->second;
      if (2 * key.second <= tensor.channels) tensor.rotation = indices[key];
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TakeRotations(TrainingCache* metric,
                                   ProfileContent* content) {
  constexpr double kTurn = 2 * 3.14159265358979323846;
  std::map<std::vector<uint64_t>, size_t> indices;
  const std::vector<TensorSpec>& specs = metric->tensors();
  for (ProfileGroup& group : content->groups) {
    for (ProfileTensor& tensor : group.tensors) {
      if (tensor.role != TensorRole::kKey) continue;
      const std::string name =
          absl::StrCat("layer_", tensor.layer, "_rotation");
      const auto spec = std::find_if(
          specs.begin(), specs.end(),
          [&](const TensorSpec& each) { return each.name == name; });
      if (spec == specs.end()) continue;
      KVC_ASSIGN_OR_RETURN(
          const std::string bytes,
          metric->Read(static_cast<size_t>(spec - specs.begin())));
      std::vector<double> radians(bytes.size() / sizeof(double));
      std::memcpy(radians.data(), bytes.data(),
                  radians.size() * sizeof(double));
      std::vector<uint64_t> increments;
      for (const double angle : radians) {
        const double turns = angle / kTurn;
        if (!(std::abs(turns) < 0.5)) break;
        // Negative turns are those of the other side of a whole one.
        increments.push_back(
            static_cast<uint64_t>(std::llround(turns * 0x1p64 / 2)) * 2);
      }
      if (spec->dtype != DType::kF64 || spec->shape.size() != 1 ||
          increments.size() != radians.size() || radians.empty() ||
          2 * radians.size() > tensor.channels) {
        return MakeError(
            absl::StatusCode::kInvalidArgument,
            absl::StrCat(metric->name(), ": ", QuoteName(name),
                         " is not F64 of at most half of the channels of a "
                         "head, each less than half a turn"),
            {.reason = "INVALID_TRAINING_METRIC"});
      }
      const auto [place, added] =
          indices.emplace(increments, content->rotations.size());
      if (added) content->rotations.push_back({.increments = increments});
      tensor.rotation = place->second;
    }
  }
  return !indices.empty();
}

}  // namespace kvcompress::profile
