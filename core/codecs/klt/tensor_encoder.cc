// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/tensor_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "codecs/ecsq/distortion.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/rope.h"
#include "codecs/ecsq/source_rows.h"
#include "codecs/klt/block_encoder.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/loadings.h"
#include "codecs/klt/weights.h"
#include "kernels/elements.h"

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

// The coarsest step of a preset that a trellis is tried with: where most levels
// are zero, it gains nothing that a model would notice.
constexpr double kMostTrellisStep = 1;
// How much coarser the steps of a trellis are at the same error.
constexpr double kTrellisSteps = 1.2;
// Blocks of a part of the heads that share their bases.
constexpr uint64_t kRun = 8;
// The unit of loadings in steps for 512 tokens; it falls with their root's
// root, as the basis of more tokens is worth more bits.
constexpr double kLoadingUnit = 0.05;

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
        values_(hints.buffers, &EncoderBuffers::values) {
    values_->resize(bytes.size() / DTypeSize(spec.dtype));
    role_ = spec.shape.size() == 4 ? spec.role : TensorRole::kNone;
    theta_ = hints.rope_theta;
    attention_ = hints.attention;
    weights_ = hints.attention_from_keys;
    header_.norms = role_ == TensorRole::kValue;
    header_.sinks = header_.norms ? 0 : 1;
    header_.trellis =
        hints.effort == Effort::kBest &&
        (preset.steps.contract || PresetStep() <= kMostTrellisStep);
    vectors_ = preset.vectors.value_or(
        VectorsFor(role_, geometry_.codable() ? RunTokens() : 0));
    if (preset.steps.contract) patch_error_ = kPatchError;
  }

  // Nothing where another way is better for certain.
  std::optional<EncodedTensor> Encode() {
    if (!geometry_.codable() || vectors_ == 0) return std::nullopt;
    const float largest = std::bit_cast<float>(
        LoadElements(dtype_, bytes_, absl::MakeSpan(*values_)));
    if (largest > kMostMagnitude) return std::nullopt;
    Prepare(largest);
    FindLoadings();
    if (!preset_.steps.contract) {
      QuantizeWith(WantedStep());
    } else if (!FindStep()) {
      return std::nullopt;
    }
    return Write();
  }

 private:
  double PresetStep() const {
    return header_.norms ? preset_.steps.value_step : preset_.steps.key_step;
  }

  // Tokens of a run of blocks, or hardly fewer.
  uint64_t RunTokens() const {
    return geometry_.tokens() / geometry_.token_parts() *
           std::min(kRun, geometry_.token_parts());
  }

  // Without rotation, and without what is patched; then cut into blocks.
  void Prepare(float largest) {
    std::vector<float>& values = *values_;
    if (preset_.steps.contract) {
      ecsq::HideOutliers(largest, absl::MakeSpan(values));
    }
    if (role_ == TensorRole::kKey) {
      ecsq::Rotator rotator;
      header_.rotation = ecsq::RemoveRotation(
          geometry_.heads(), geometry_.tokens(), geometry_.channels(), theta_,
          &rotator, values.data());
    }
    if (role_ == TensorRole::kKey && preset_.weighting > 0) {
      weights_ = KeyWeights(geometry_, values);
    }
    if (weights_.size() != geometry_.tokens()) weights_.clear();
    if (attention_.size() != geometry_.tokens()) {
      attention_ = AttentionOf(geometry_.tokens(), weights_);
    }
    std::vector<int8_t> offsets(geometry_.tokens());
    if (role_ != TensorRole::kNone) offsets = OffsetsOf(preset_, attention_);
    if (header_.norms) offsets[0] = kFirstValueOffset;
    const size_t row_size = geometry_.channels() * DTypeSize(dtype_);
    encoders_.reserve(geometry_.head_parts() * geometry_.token_parts());
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
        encoders_.emplace_back(header_, geometry_, block, patch_error_, dtype_,
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
    const double coarser = header_.trellis ? kTrellisSteps : 1;
    if (!preset_.steps.contract) {
      return coarser * size * PresetStep();
    }
    // The error of a coefficient is spread evenly over a step.
    const double step = coarser * kAimedRmse * std::sqrt(12.0);
    if (!header_.norms) return step;
    const double rows = static_cast<double>(values_->size()) /
                        static_cast<double>(geometry_.channels());
    const double norm = std::sqrt(norm_squares / rows);
    return norm == 0 ? 0 : step / norm;
  }

  // Quantizes all blocks, and measures what that loses.
  void QuantizeWith(double step) {
    header_.step = ecsq::RoundToStep(std::max(step, least_step_));
    MakeBases();
    decoded_.resize(values_->size() * DTypeSize(dtype_));
    const size_t row_size = geometry_.channels() * DTypeSize(dtype_);
    std::vector<uint8_t> decoded;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      decoded.resize(geometry_.Elements(block) * DTypeSize(dtype_));
      encoders_[i].Quantize(bases_[run_of_[i]], decoded.data());
      for (size_t row = 0; row < block.heads * block.tokens; ++row) {
        std::memcpy(
            &decoded_[geometry_.RowBegin(block, row) * DTypeSize(dtype_)],
            &decoded[row * row_size], row_size);
      }
    }
    distortion_ = DistortionAccumulator();
    sums_ = DistortionSums();
    ecsq::AddDistortion(
        CompareElements(dtype_, bytes_,
                        reinterpret_cast<const uint8_t*>(decoded_.data()),
                        values_->size()),
        &sums_, &distortion_);
  }

  // What was quantized last; nothing when a block is larger than it may be.
  std::optional<EncodedTensor> Write() {
    EncodedTensor result;
    WriteTensorHeader(header_, &result.payload);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const bool same = i > 0 && run_of_[i] == run_of_[i - 1];
      if (!encoders_[i].Write(bases_[run_of_[i]], same, &result.payload) ||
          result.payload.size() > ecsq::MaxPayloadSize(values_->size())) {
        return std::nullopt;
      }
    }
    result.decoded = std::move(decoded_);
    result.distortion = distortion_;
    if (role_ == TensorRole::kKey) result.attention = std::move(weights_);
    return result;
  }

  // Principal directions of each run of blocks.
  void FindLoadings() {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const uint64_t part = i % geometry_.token_parts();
      if (part % kRun == 0) {
        loadings_.emplace_back();
        run_tokens_.push_back(0);
        for (size_t g = 0; g < geometry_.Groups(blocks_[i]); ++g) {
          const size_t size = geometry_.GroupSize(blocks_[i], g);
          Covariance covariance(size);
          for (size_t k = i;
               k < i + std::min(kRun, geometry_.token_parts() - part); ++k) {
            encoders_[k].AddTo(g, &covariance);
          }
          loadings_.back().push_back(klt::FindLoadings(covariance, vectors_));
        }
      }
      run_tokens_.back() += blocks_[i].tokens;
      run_of_.push_back(loadings_.size() - 1);
    }
  }

  void MakeBases() {
    bases_.clear();
    for (size_t run = 0; run < loadings_.size(); ++run) {
      const double spread =
          std::pow(512.0 / static_cast<double>(run_tokens_[run]), 0.25);
      Bases bases;
      for (const Loadings& loadings : loadings_[run]) {
        bases.reflectors.push_back(
            MakeReflectors(loadings, kLoadingUnit * spread * header_.step));
        bases.matrices.push_back(MakeMatrix(bases.reflectors.back()));
        bases.transposed.push_back(bases.matrices.back().Transposed());
      }
      bases_.push_back(std::move(bases));
    }
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

  // Quantizes with the largest of a few steps that keeps the bounds. False when
  // none does.
  bool FindStep() {
    double best = 0;
    double step = WantedStep();
    double last = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      QuantizeWith(last = step);
      const bool keeps = ecsq::KeepsContract(sums_);
      if (keeps) best = std::max(best, step);
      if (sums_.sum_e2 == 0) break;
      const double room = Room();
      if (keeps && room < 1.005) break;
      // Errors grow slower than steps: first a stride, then with care.
      step *= trial < 2 ? std::pow(room, 1.15) : std::min(room, 0.999);
    }
    if (best == 0) return false;
    if (best != last) QuantizeWith(best);
    return true;
  }

  const DType dtype_;
  const Preset preset_;
  const Geometry geometry_;
  const uint8_t* const bytes_;
  // Once prepared, without rotation and what is patched.
  Borrowed<std::vector<float>> values_;
  TensorRole role_ = TensorRole::kNone;
  std::optional<double> theta_;
  std::vector<float> attention_;  // of each token
  std::vector<float> weights_;    // what keys tell of it, or empty
  TensorHeader header_;
  float patch_error_ = 0;
  size_t vectors_ = 0;  // most of a group
  std::vector<Block> blocks_;
  std::vector<BlockEncoder> encoders_;
  // Of each run of blocks that share their bases: of the groups, and tokens.
  std::vector<std::vector<Loadings>> loadings_;
  std::vector<uint64_t> run_tokens_;
  std::vector<Bases> bases_;
  std::vector<size_t> run_of_;  // of each block
  double least_step_ = 0;
  std::string decoded_;
  DistortionAccumulator distortion_;
  DistortionSums sums_;
};

}  // namespace

EncodedTensor EncodeTensor(const TensorSpec& spec, const Preset& preset,
                           const EncodeHints& hints,
                           const WholeTensor& tensor) {
  std::optional<EncodedTensor> joint =
      Encoder(spec, preset, hints, tensor.bytes).Encode();
  EncodedTensor alone = ecsq::EncodeTensor(spec, preset.steps, hints, tensor);
  if (!joint) return alone;
  if (joint->payload.size() < alone.payload.size()) return *std::move(joint);
  alone.attention = std::move(joint->attention);
  return alone;
}

}  // namespace kvcompress::klt
