// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/tensor_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "codecs/ecsq/distortion.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/rope.h"
#include "codecs/klt/block_encoder.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/weights.h"
#include "dtype/elements.h"

namespace kvcompress::klt {
namespace {

constexpr double kMostMagnitude = 0x1p96;
constexpr double kMostSteps = 0x1p14;  // of the largest value
constexpr float kPatchError = 0.49f;
// Offset of the first token of values: an eighth of the step.
constexpr int8_t kFirstValueOffset = 12;

// What "contract" aims at, a little inside its bounds.
constexpr double kAimedRmse = 0.0985;
constexpr double kAimedSnr = 65.3;       // as a ratio; 18.15 dB
constexpr double kAimedCosine = 0.0095;  // 1 - cosine similarity
constexpr int kTrials = 4;

// Most basis vectors of a group by the tokens of a block: more are not worth
// their bits.
size_t VectorsFor(TensorRole role, uint64_t tokens) {
  if (tokens < 128) return 0;
  const bool value = role == TensorRole::kValue;
  if (tokens < 256) return value ? 0 : 8;
  if (tokens < 512) return value ? 16 : 32;
  return tokens < 1024 ? 64 : 96;
}

class Encoder {
 public:
  Encoder(const TensorSpec& spec, const Preset& preset,
          const EncodeHints& hints, absl::string_view bytes)
      : dtype_(spec.dtype),
        preset_(preset),
        geometry_(spec),
        bytes_(reinterpret_cast<const uint8_t*>(bytes.data())),
        source_(bytes.size() / DTypeSize(spec.dtype)) {
    role_ = spec.shape.size() == 4 ? spec.role : TensorRole::kNone;
    theta_ = hints.rope_theta;
    header_.norms = role_ == TensorRole::kValue;
    header_.sinks = header_.norms ? 0 : 1;
    choices_.vectors = preset.vectors.value_or(
        VectorsFor(role_, geometry_.codable()
                              ? geometry_.tokens() / geometry_.token_parts()
                              : 0));
    if (preset.steps.contract) choices_.patch_error = kPatchError;
  }

  // Nothing where another way is better for certain.
  std::optional<EncodedTensor> Encode() {
    if (!geometry_.codable() || choices_.vectors == 0) return std::nullopt;
    LoadElements(dtype_, bytes_, absl::MakeSpan(source_));
    const auto [least, most] =
        std::minmax_element(source_.begin(), source_.end());
    if (std::max(-*least, *most) > kMostMagnitude) return std::nullopt;
    Prepare();
    return preset_.steps.contract ? SearchStep() : EncodeWith(WantedStep());
  }

 private:
  // Without rotation, and without what is patched; then cut into blocks.
  void Prepare() {
    std::vector<float> values = source_;
    if (preset_.steps.contract) ecsq::HideOutliers(absl::MakeSpan(values));
    if (role_ == TensorRole::kKey) {
      header_.rotation =
          ecsq::RemoveRotation(geometry_.heads(), geometry_.tokens(),
                               geometry_.channels(), theta_, values.data());
    }
    std::vector<double> weights;
    if (role_ == TensorRole::kKey && preset_.weighting > 0) {
      weights = KeyWeights(geometry_, values);
    }
    std::vector<int8_t> offsets(geometry_.tokens());
    if (role_ != TensorRole::kNone) {
      offsets = OffsetsOf(preset_, geometry_.tokens(), weights);
    }
    if (header_.norms) offsets[0] = kFirstValueOffset;
    const size_t row_size = geometry_.channels() * DTypeSize(dtype_);
    for (uint64_t h = 0; h < geometry_.head_parts(); ++h) {
      for (uint64_t t = 0; t < geometry_.token_parts(); ++t) {
        const Block block = geometry_.block(h, t);
        BlockInput input;
        for (size_t row = 0; row < block.heads * block.tokens; ++row) {
          const uint64_t first = geometry_.RowBegin(block, row);
          input.values.insert(input.values.end(), &values[first],
                              &values[first] + geometry_.channels());
          const uint8_t* const bytes = bytes_ + first * DTypeSize(dtype_);
          input.source.insert(input.source.end(), bytes, bytes + row_size);
        }
        blocks_.push_back(block);
        encoders_.emplace_back(header_, geometry_, block, choices_, dtype_,
                               std::move(input),
                               absl::MakeConstSpan(offsets).subspan(
                                   block.first_token, block.tokens));
      }
    }
  }

  double WantedStep() {
    double squares = 0;
    double largest = 0;
    double norm_squares = 0;
    uint64_t count = 0;
    for (const BlockEncoder& each : encoders_) {
      squares += each.square_sum();
      count += each.square_count();
      largest = std::max(largest, each.largest());
      norm_squares += each.norm_square_sum();
    }
    least_step_ = largest / kMostSteps;
    const double size =
        count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
    if (!preset_.steps.contract) {
      return size * (header_.norms ? preset_.steps.value_step
                                   : preset_.steps.key_step);
    }
    // The error of a coefficient is spread evenly over a step.
    const double step = kAimedRmse * std::sqrt(12.0);
    if (!header_.norms) return step;
    const double rows = static_cast<double>(source_.size()) /
                        static_cast<double>(geometry_.channels());
    const double norm = std::sqrt(norm_squares / rows);
    return norm == 0 ? 0 : step / norm;
  }

  // Nothing when a block is larger than it may be.
  std::optional<EncodedTensor> EncodeWith(double step) {
    header_.step = ecsq::RoundToStep(std::max(step, least_step_));
    EncodedTensor result;
    result.decoded.resize(source_.size() * DTypeSize(dtype_));
    WriteTensorHeader(header_, &result.payload);
    const size_t row_size = geometry_.channels() * DTypeSize(dtype_);
    std::vector<uint8_t> decoded;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      decoded.resize(geometry_.Elements(block) * DTypeSize(dtype_));
      if (!encoders_[i].Encode(&result.payload, decoded.data()) ||
          result.payload.size() > ecsq::MaxPayloadSize(source_.size())) {
        return std::nullopt;
      }
      for (size_t row = 0; row < block.heads * block.tokens; ++row) {
        std::memcpy(
            &result.decoded[geometry_.RowBegin(block, row) * DTypeSize(dtype_)],
            &decoded[row * row_size], row_size);
      }
    }
    sums_ =
        ecsq::Compare(dtype_, source_,
                      reinterpret_cast<const uint8_t*>(result.decoded.data()),
                      &result.distortion);
    return result;
  }

  // How much larger the step might be by what the last trial lost.
  double Room() const {
    const double count = static_cast<double>(sums_.count);
    const double rmse = std::sqrt(sums_.sum_e2 / count);
    const double snr = sums_.sum_x2 / sums_.sum_e2;
    const double cosine =
        sums_.sum_xy / std::sqrt(sums_.sum_x2) / std::sqrt(sums_.sum_y2);
    return std::min({kAimedRmse / rmse, std::sqrt(snr / kAimedSnr),
                     std::sqrt(kAimedCosine / std::max(1 - cosine, 1e-12))});
  }

  // The smallest of a few trials that keeps the bounds; nothing when none does.
  std::optional<EncodedTensor> SearchStep() {
    std::optional<EncodedTensor> best;
    double step = WantedStep();
    for (int trial = 0; trial < kTrials; ++trial) {
      std::optional<EncodedTensor> attempt = EncodeWith(step);
      if (!attempt || sums_.sum_e2 == 0) return attempt;
      if (ecsq::KeepsContract(sums_) &&
          (!best || attempt->payload.size() < best->payload.size())) {
        best = std::move(attempt);
      }
      const double room = Room();
      if (best && room > 0.995 && room < 1.005) break;
      // Errors grow slower than steps: first a stride, then with care.
      step *= trial < 2 ? std::pow(room, 1.15) : std::min(room, 0.999);
    }
    return best;
  }

  const DType dtype_;
  const Preset preset_;
  const Geometry geometry_;
  const uint8_t* const bytes_;
  std::vector<float> source_;
  TensorRole role_ = TensorRole::kNone;
  std::optional<double> theta_;
  TensorHeader header_;
  BlockChoices choices_;
  std::vector<Block> blocks_;
  std::vector<BlockEncoder> encoders_;
  double least_step_ = 0;
  DistortionSums sums_;
};

}  // namespace

EncodedTensor EncodeTensor(const TensorSpec& spec, const Preset& preset,
                           const EncodeHints& hints, absl::string_view bytes) {
  std::optional<EncodedTensor> joint =
      Encoder(spec, preset, hints, bytes).Encode();
  EncodedTensor alone = ecsq::EncodeTensor(spec, preset.steps, hints, bytes);
  if (joint && joint->payload.size() < alone.payload.size()) {
    return *std::move(joint);
  }
  return alone;
}

}  // namespace kvcompress::klt
