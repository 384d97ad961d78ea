// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/tensor_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "codecs/ecsq/distortion.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/rope.h"
#include "codecs/ecsq/source_rows.h"
#include "codecs/klt/aims.h"
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

constexpr int kTrials = 4;
// The first trials are of one token in so many, up to kMostStride, as leaves
// so many elements: enough to tell the error of all to half a percent.
constexpr size_t kSample = 24 << 10;
constexpr size_t kMostStride = 16;
constexpr size_t kLeastSample = 16;  // tokens of a block
constexpr int kSampleTrials = 4;
// Errors grow slower than steps.
constexpr double kStride = 1.15;
// Bases serve steps that differ by this part.
constexpr double kSameBases = 0.05;
constexpr double kNear = 0.02;      // of the room there is
constexpr double kMostRoom = 1000;  // that a sample is believed
constexpr double kEnough = 1.005;   // not worth another trial

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

class Encoder {
 public:
  Encoder(const TensorSpec& spec, const Preset& preset,
          const EncodeHints& hints, const WholeTensor& tensor)
      : dtype_(spec.dtype),
        preset_(preset),
        geometry_(spec),
        tensor_(tensor),
        bytes_(reinterpret_cast<const uint8_t*>(tensor.bytes.data())),
        values_(hints.buffers, &EncoderBuffers::values),
        memory_(hints.buffers),
        decoded_(hints.buffers, &EncoderBuffers::decoded) {
    values_->resize(tensor.bytes.size() / DTypeSize(spec.dtype));
    role_ = spec.shape.size() == 4 ? spec.role : TensorRole::kNone;
    theta_ = hints.rope_theta;
    attention_ = hints.attention;
    from_keys_ = hints.from_keys;
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
    const bool tells = role_ == TensorRole::kKey && preset_.sharpening > 0;
    if (!geometry_.codable() || (vectors_ == 0 && !tells)) return std::nullopt;
    const float largest = std::bit_cast<float>(
        LoadElements(dtype_, bytes_, absl::MakeSpan(*values_)));
    if (largest > kMostMagnitude) return std::nullopt;
    Study(largest);
    if (vectors_ == 0) return std::nullopt;
    Prepare();
    FindLoadings();
    if (!preset_.steps.contract) {
      QuantizeWith(WantedStep());
    } else if (!FindStep()) {
      return std::nullopt;
    }
    return Write();
  }

  // What keys told, these or those of the values' layer; after Encode.
  KeyHints TakeHints() { return std::move(from_keys_); }

 private:
  double PresetStep() const {
    return header_.norms ? preset_.steps.value_step : preset_.steps.key_step;
  }

  // Tokens of a run of blocks, or hardly fewer.
  uint64_t RunTokens() const {
    return geometry_.tokens() / geometry_.token_parts() *
           std::min(kRun, geometry_.token_parts());
  }

  // Takes rotation and what is patched away, and hears what keys tell.
  void Study(float largest) {
    std::vector<float>& values = *values_;
    if (preset_.steps.contract) {
      square_sum_ =
          kernels::Active().rows.sum_squares(values.data(), values.size());
      ecsq::HideOutliers(largest, absl::MakeSpan(values));
    }
    if (role_ == TensorRole::kKey) {
      header_.rotation = ecsq::RemoveRotation(
          geometry_.heads(), geometry_.tokens(), geometry_.channels(), theta_,
          &memory_.reconstructor.rotator, values.data());
      if (!preset_.steps.contract) from_keys_ = StudyKeys(geometry_, values);
    }
  }

  // Cuts it into blocks.
  void Prepare() {
    std::vector<float>& values = *values_;
    std::vector<float>& weights = from_keys_.attention;
    if (weights.size() != geometry_.tokens()) weights.clear();
    if (attention_.size() != geometry_.tokens()) {
      attention_ = AttentionOf(geometry_.tokens(), weights);
    }
    std::vector<int8_t> offsets(geometry_.tokens());
    if (role_ != TensorRole::kNone) offsets = OffsetsOf(preset_, attention_);
    if (header_.norms) offsets[0] = kFirstValueOffset;
    encoders_.reserve(geometry_.head_parts() * geometry_.token_parts());
    for (uint64_t h = 0; h < geometry_.head_parts(); ++h) {
      for (uint64_t t = 0; t < geometry_.token_parts(); ++t) {
        const Block block = geometry_.block(h, t);
        const uint64_t first = geometry_.RowBegin(block, 0);
        const BlockInput input = {
            .values = &values[first],
            .source = bytes_ + first * DTypeSize(dtype_),
            .head_stride = geometry_.tokens() * geometry_.channels()};
        blocks_.push_back(block);
        encoders_.emplace_back(header_, geometry_, block, patch_error_, dtype_,
                               input,
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
      return coarser * size * PresetStep() *
             SharpnessFactor(preset_, from_keys_.sharpness);
    }
    const double rows = static_cast<double>(values_->size()) /
                        static_cast<double>(geometry_.channels());
    const double norm_square = header_.norms ? norm_squares / rows : 1;
    return norm_square == 0 ? 0
                            : coarser * ExpectedStep(values_->size(),
                                                     square_sum_, norm_square);
  }

  // Quantizes all blocks, and measures what that loses.
  void QuantizeWith(double step) {
    header_.step = ecsq::RoundToStep(std::max(step, least_step_));
    if (std::abs(header_.step - bases_step_) > kSameBases * bases_step_) {
      MakeBases(header_.step);
    }
    decoded_->resize(values_->size() * DTypeSize(dtype_));
    distortion_ = DistortionAccumulator();
    sums_ = DistortionSums();
    for (size_t i = 0; i < blocks_.size(); ++i) {
      encoders_[i].Quantize(
          bases_[run_of_[i]], &memory_,
          reinterpret_cast<uint8_t*>(decoded_->data()) +
              geometry_.RowBegin(blocks_[i], 0) * DTypeSize(dtype_),
          &sums_, &distortion_);
    }
  }

  // What was quantized last; nothing when a block is larger than it may be.
  std::optional<EncodedTensor> Write() {
    EncodedTensor result;
    WriteTensorHeader(header_, &result.payload);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const bool same = i > 0 && run_of_[i] == run_of_[i - 1];
      if (!encoders_[i].Write(bases_[run_of_[i]], same, &memory_,
                              &result.payload) ||
          result.payload.size() > ecsq::MaxPayloadSize(values_->size())) {
        return std::nullopt;
      }
    }
    if (tensor_.wants_decoded) result.decoded.swap(*decoded_);
    result.distortion = distortion_;
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

  // For steps near this one.
  void MakeBases(double step) {
    bases_step_ = step;
    bases_.clear();
    for (size_t run = 0; run < loadings_.size(); ++run) {
      const double spread =
          std::pow(512.0 / static_cast<double>(run_tokens_[run]), 0.25);
      bases_.emplace_back(loadings_[run], kLoadingUnit * spread * step);
    }
  }

  // What all elements lose by what a sample did. With norms errors grow with
  // the values; without, the first token, which is not like the others, loses
  // next to nothing.
  DistortionSums Extend(const DistortionSums& sample) const {
    const double share = 1 - 1 / static_cast<double>(geometry_.tokens());
    const double factor = header_.norms
                              ? square_sum_ / sample.sum_x2
                              : share * static_cast<double>(values_->size()) /
                                    static_cast<double>(sample.count);
    DistortionSums all = {.count = values_->size()};
    all.sum_e2 = factor * sample.sum_e2;
    all.sum_x2 = square_sum_;
    all.sum_xy = all.sum_x2 + factor * (sample.sum_xy - sample.sum_x2);
    all.sum_y2 = all.sum_x2 + factor * (sample.sum_y2 - sample.sum_x2);
    return all;
  }

  // About the largest step that keeps the bounds, by trials from `step` on with
  // some of the tokens, in the bases of that step and without rotation.
  double SampleStep(double step) {
    const size_t stride =
        std::min({values_->size() / kSample, kMostStride,
                  geometry_.tokens() / geometry_.token_parts() / kLeastSample});
    if (stride < 2) return step;
    header_.step = ecsq::RoundToStep(std::max(step, least_step_));
    MakeBases(header_.step);
    TensorHeader header = header_;
    header.rotation.reset();
    header.sinks = 0;
    std::vector<BlockEncoder> samples;
    samples.reserve(encoders_.size());
    for (const BlockEncoder& each : encoders_) {
      samples.push_back(each.Sample(header, stride));
    }
    std::vector<uint8_t> decoded;
    for (int trial = 0; trial < kSampleTrials; ++trial) {
      header.step = ecsq::RoundToStep(std::max(step, least_step_));
      DistortionAccumulator ignored;
      DistortionSums sums;
      for (size_t i = 0; i < samples.size(); ++i) {
        decoded.resize(geometry_.Elements(samples[i].block()) *
                       DTypeSize(dtype_));
        samples[i].Quantize(bases_[run_of_[i]], &memory_, decoded.data(), &sums,
                            &ignored);
      }
      if (sums.sum_e2 == 0) break;
      const double room = Room(Extend(sums));
      if (!(room > 1 / kMostRoom && room < kMostRoom)) break;
      step *= std::pow(room, kStride);
      if (std::abs(room - 1) < kNear) break;
    }
    return step;
  }

  // Quantizes with the largest of a few steps that keeps the bounds. False when
  // none does.
  bool FindStep() {
    double best = 0;
    double best_bases = 0;  // the step of its bases
    double step = SampleStep(WantedStep());
    double last = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      QuantizeWith(last = step);
      const bool keeps = ecsq::KeepsContract(sums_);
      if (keeps && step > best) {
        best = step;
        best_bases = bases_step_;
      }
      if (sums_.sum_e2 == 0) break;
      const double room = Room(sums_);
      if (keeps && room < kEnough) break;
      // First a stride, then with care.
      step *= trial < 2 ? std::pow(room, kStride) : std::min(room, 0.999);
    }
    if (best == 0) return false;
    if (best != last) {
      if (bases_step_ != best_bases) MakeBases(best_bases);
      QuantizeWith(best);
    }
    return true;
  }

  const DType dtype_;
  const Preset preset_;
  const Geometry geometry_;
  const WholeTensor& tensor_;
  const uint8_t* const bytes_;
  // Once prepared, without rotation and what is patched.
  Borrowed<std::vector<float>> values_;
  TensorRole role_ = TensorRole::kNone;
  std::optional<double> theta_;
  std::vector<float> attention_;  // of each token
  KeyHints from_keys_;
  TensorHeader header_;
  float patch_error_ = 0;
  size_t vectors_ = 0;  // most of a group
  std::vector<Block> blocks_;
  std::vector<BlockEncoder> encoders_;
  // Of each run of blocks that share their bases: of the groups, and tokens.
  std::vector<std::vector<Loadings>> loadings_;
  std::vector<uint64_t> run_tokens_;
  std::vector<Bases> bases_;
  double bases_step_ = 0;       // for which they were made
  std::vector<size_t> run_of_;  // of each block
  EncoderMemory memory_;
  double square_sum_ = 0;  // of the source, for "contract"
  double least_step_ = 0;
  Borrowed<std::string> decoded_;
  DistortionAccumulator distortion_;
  DistortionSums sums_;
};

}  // namespace

EncodedTensor EncodeTensor(const TensorSpec& spec, const Preset& preset,
                           const EncodeHints& hints,
                           const WholeTensor& tensor) {
  std::optional<EncodedTensor> joint;
  KeyHints told;
  {
    Encoder encoder(spec, preset, hints, tensor);
    joint = encoder.Encode();
    told = encoder.TakeHints();
  }
  const double factor = SharpnessFactor(preset, told.sharpness);
  ecsq::Preset steps = preset.steps;
  steps.key_step *= factor;
  steps.value_step *= factor;
  if (!joint ||
      ecsq::MayFit(spec, steps, hints, tensor, joint->payload.size())) {
    EncodedTensor alone = ecsq::EncodeTensor(spec, steps, hints, tensor);
    if (!joint || alone.payload.size() <= joint->payload.size()) {
      joint = std::move(alone);
    }
  }
  if (spec.role == TensorRole::kKey) joint->key_hints = std::move(told);
  return *std::move(joint);
}

}  // namespace kvcompress::klt
