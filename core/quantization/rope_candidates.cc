// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/rope_candidates.h"

#include <algorithm>
#include <vector>

#include "kvcompress/layout.h"

namespace kvcompress::coding {
namespace {

// Heads with more channels are not rotated.
constexpr size_t kMaxRotatedHead = 4096;

// The channels that a head of so many has rotated by an embedding: the first of
// them, and how many; none where they do not fit.
struct Part {
  Part(const RopeEmbedding& embedding, size_t channels) {
    const size_t before = embedding.first_channel;
    const size_t rotary = embedding.rotary_channels;
    if (before > 0 && rotary > 0) {
      if (channels == rotary) size = rotary;
      if (channels != before + rotary) return;
    }
    first = before;
    if (before >= channels) return;
    size = rotary == 0 ? (channels - before) / 2 * 2 : rotary;
    if (before + size > channels) size = 0;
  }
  size_t first = 0;
  size_t size = 0;
};

// Runs of equal multipliers; those at the end that multiply nothing left out.
std::vector<Rotation::Run> RunsOf(const std::vector<double>& multipliers) {
  constexpr uint32_t kOne = uint32_t{1} << kMultiplierBits;
  std::vector<Rotation::Run> runs;
  for (const double multiplier : multipliers) {
    const auto rounded = static_cast<uint32_t>(multiplier * kOne + 0.5);
    if (runs.empty() || runs.back().multiplier != rounded) {
      runs.push_back({.length = 0, .multiplier = rounded});
    }
    ++runs.back().length;
  }
  while (!runs.empty() && runs.back().multiplier == kOne) runs.pop_back();
  return runs;
}

// How much finer the rotated part of a latent is coded, in halvings of its
// steps. It is read by every head as it is, and the latent only through each
// head's own projection.
constexpr uint8_t kRotatedPartShift = 1;
constexpr double kRotatedPartFactor = 1.0 / (1 << kRotatedPartShift);

void AddCandidates(const RopeEmbedding& embedding, size_t channels,
                   std::vector<RotationCandidates::Candidate>* list) {
  const Part part(embedding, channels);
  if (part.size == 0) return;
  const size_t pairs = part.size / 2;
  Rotation rotation{.ratio = RatioOf(embedding.theta, pairs)};
  rotation.runs = RunsOf(RopeMultipliers(embedding, pairs));
  if (rotation.runs.size() > kMaxRuns) return;
  if (embedding.first_channel > 0 && part.first > 0) {
    rotation.shift = kRotatedPartShift;
  }
  if (part.size != channels || !rotation.runs.empty()) {
    rotation.first = static_cast<uint16_t>(part.first);
    rotation.pairs = static_cast<uint16_t>(pairs);
  }
  using Pairs = RopeEmbedding::Pairs;
  for (const bool interleaved : {false, true}) {
    const Pairs kind = interleaved ? Pairs::kInterleaved : Pairs::kHalves;
    if (embedding.pairs != Pairs::kUnknown && embedding.pairs != kind) continue;
    rotation.interleaved = interleaved;
    list->push_back({rotation, embedding});
    list->back().embedding.pairs = kind;
  }
}

// The embeddings of a layer.
std::vector<RopeEmbedding> EmbeddingsOf(const RopeParameters& rope,
                                        std::optional<uint32_t> layer) {
  if (!layer || *layer >= rope.layers.size()) return rope.embeddings;
  const uint32_t number = rope.layers[*layer];
  if (number == 0) return {};
  return {rope.embeddings[number - 1]};
}

// Whether `rope` is that of a model with MLA whose tensors can have so many
// channels: latent and rotated part, or the rotated part alone.
bool IsLatentRope(const RopeParameters* rope, size_t channels) {
  return rope != nullptr &&
         std::any_of(rope->embeddings.begin(), rope->embeddings.end(),
                     [channels](const RopeEmbedding& embedding) {
                       return embedding.first_channel > 0 &&
                              Part(embedding, channels).size > 0;
                     });
}

// Adds those of the bases in common use.
void AddUsual(size_t channels,
              std::vector<RotationCandidates::Candidate>* list) {
  constexpr double kCommon[] = {1e4, 5e5, 1e6, 1e5,   5e6,  8e6,
                                1e7, 2e6, 5e4, 1.5e5, 2.5e5};
  for (const double base : kCommon) {
    AddCandidates({.theta = base}, channels, list);
  }
}

// Whether keys are checked against what is declared. It takes as long as to
// find a rotation that is not declared, so not all layers are.
bool IsChecked(const TensorSpec& spec) {
  constexpr uint32_t kEvery = 8;
  return !spec.layer || *spec.layer % kEvery == 0;
}

}  // namespace

RotationCandidates CandidatesFor(const TensorSpec& spec, TensorRole role,
                                 const EncodeHints& hints, size_t channels) {
  const RopeParameters* const rope = hints.rope.get();
  const std::optional<double> theta = hints.rope_theta;
  RotationCandidates candidates{.declared = rope != nullptr || theta};
  if (channels > kMaxRotatedHead) return candidates;
  if (role != TensorRole::kKey &&
      (spec.role == TensorRole::kValue || !IsLatentRope(rope, channels))) {
    return candidates;
  }
  if (IsRotatedPart(spec)) candidates.step_factor = kRotatedPartFactor;
  if (candidates.declared && role == TensorRole::kKey && channels % 2 == 0 &&
      !IsLatentRope(rope, channels) && IsChecked(spec)) {
    AddUsual(channels, &candidates.usual);
  }
  if (rope != nullptr) {
    for (const RopeEmbedding& embedding : EmbeddingsOf(*rope, spec.layer)) {
      AddCandidates(embedding, channels, &candidates.list);
    }
    return candidates;
  }
  if (theta == 0 || channels % 2 != 0) return candidates;
  if (theta) {
    AddCandidates({.theta = *theta}, channels, &candidates.list);
  } else {
    AddUsual(channels, &candidates.list);
  }
  return candidates;
}

bool FitsRope(const RopeParameters& rope, std::optional<uint32_t> layer,
              size_t channels) {
  const std::vector<RopeEmbedding> embeddings = EmbeddingsOf(rope, layer);
  return std::all_of(embeddings.begin(), embeddings.end(),
                     [channels](const RopeEmbedding& embedding) {
                       return embedding.first_channel == channels ||
                              Part(embedding, channels).size > 0;
                     });
}

}  // namespace kvcompress::coding
