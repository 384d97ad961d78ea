// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// More than 400 lines: analysis, search and writing share the state of a
// tensor.

#include "codecs/klt/tensor_encoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codecs/klt/block_encoder.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/repeats.h"
#include "codecs/klt/run_bases.h"
#include "codecs/klt/token_weights.h"
#include "coding/format.h"
#include "coding/identity/source_rows.h"
#include "coding/identity/tensor_encoder.h"
#include "coding/step_options.h"
#include "metrics/token_quality.h"
#include "quantization/distortion.h"
#include "quantization/rope.h"
#include "quantization/rope_candidates.h"
#include "quantization/steps.h"
#include "tensor/grow.h"
#include "tensor/slabs.h"
#include "tensor/workers.h"

namespace kvcompress::klt {
namespace {

constexpr double kMaxMagnitude = 0x1p96;
constexpr double kMaxSteps = 0x1p14;  // of the largest value
constexpr float kMaxError = 0.49f;
// Offset of the first token of values: an eighth of the step.
constexpr int8_t kFirstValueOffset = 12;

constexpr int kTrials = 4;
// The first trials are of one token in so many, up to kMaxStride, as leaves
// so many elements: enough to estimate the error of all to half a percent.
constexpr size_t kSample = 24 << 10;
constexpr size_t kMaxStride = 16;
constexpr size_t kMinSample = 16;  // tokens of a block
constexpr int kSampleTrials = 4;
// Errors grow slower than steps.
constexpr double kStride = 1.15;
// Bases serve steps that differ by this part.
constexpr double kSameBases = 0.05;
constexpr double kNear = 0.02;         // of the headroom
constexpr double kMaxHeadroom = 1000;  // that a sample is believed
constexpr double kEnough = 1.005;      // not worth another trial

// The coarsest step of a preset that a trellis is tried with: where most levels
// are zero, it gains nothing that a model would notice.
constexpr double kMaxTrellisStep = 1.1;
// How much coarser the steps of a trellis are at the same error.
constexpr double kTrellisSteps = 1.2;

class Encoder {
 public:
  Encoder(const TensorSpec& spec, const Preset& preset,
          const EncodeHints& hints, const WholeTensor& tensor)
      : spec_(spec),
        dtype_(spec.dtype),
        preset_(preset),
        geometry_(spec),
        tensor_(tensor),
        bytes_(reinterpret_cast<const uint8_t*>(tensor.bytes.data())),
        elements_(tensor.bytes.size() / DTypeSize(spec.dtype)),
        checkpoint_(hints.checkpoint),
        workers_(hints.workers),
        measures_tokens_(hints.measures_tokens),
        bases_(geometry_, checkpoint_),
        memory_(hints.buffers, checkpoint_),
        memory_of_(workers_, &memory_, checkpoint_),
        rows_(header_, geometry_, dtype_, bytes_),
        decoded_(hints.buffers, &EncoderBuffers::decoded) {
    role_ = spec.shape.size() == 4 ? spec.role : TensorRole::kNone;
    rotations_ =
        coding::CandidatesFor(spec, role_, hints, geometry_.channels());
    attention_ = hints.attention;
    from_keys_.attention = hints.from_keys.attention;
    header_.mode = coding::kModeKlt;
    header_.int8_sinks = true;
    header_.norms = role_ == TensorRole::kValue;
    header_.sinks = header_.norms ? 0 : 1;
    header_.trellis =
        hints.effort == Effort::kBest &&
        (preset.steps.contract || PresetStep() <= kMaxTrellisStep);
    vectors_ = preset.vectors.value_or(
        VectorsFor(role_, RunBases::TokensOf(geometry_)));
    if (preset.steps.contract) {
      max_error_ = static_cast<float>(kMaxError * rotations_.step_factor);
    }
  }

  // Nothing where another mode is better for certain, or the checkpoint stops.
  std::optional<EncodedTensor> Encode() {
    const bool analyzes = role_ != TensorRole::kNone && preset_.sharpening > 0;
    if (!geometry_.codable() || (vectors_ == 0 && !analyzes)) {
      return std::nullopt;
    }
    if (tensor_.largest > kMaxMagnitude) return std::nullopt;
    Analyze();
    if (Stops(checkpoint_)) return std::nullopt;
    if (vectors_ == 0) return std::nullopt;
    Prepare();
    bases_.Analyze(absl::MakeSpan(encoders_), vectors_, workers_, &memory_of_);
    if (Stops(checkpoint_)) return std::nullopt;
    if (!preset_.steps.contract) {
      QuantizeWith(WantedStep());
    } else if (!FindStep()) {
      return std::nullopt;
    }
    return Write();
  }

  // The preset, finer where the tokens repeat themselves. After Encode.
  const Preset& refined() const { return preset_; }
  // What the keys showed, if these are keys. After Encode.
  KeyHints TakeHints() { return std::move(from_keys_); }

 private:
  double PresetStep() const {
    return header_.norms ? preset_.steps.value_step : preset_.steps.key_step;
  }

  // Finds the rotation, hides outliers, and analyzes keys and repetitions.
  void Analyze() {
    if (preset_.steps.contract) {
      square_sum_ = rows_.SumSquares(elements_, checkpoint_);
      rows_.HideOutliers(tensor_.largest, elements_, checkpoint_);
    }
    if (auto found =
            rows_.FindRotation(rotations_, &likelier_theta_, checkpoint_)) {
      header_.rotation = std::move(found->rotation);
      rope_ = std::move(found->finding);
    }
    if (role_ == TensorRole::kNone || preset_.steps.contract ||
        Stops(checkpoint_)) {
      return;
    }
    const auto load = [this](size_t head, size_t begin, size_t end,
                             float* values) {
      const Block tokens = {.first_head = head,
                            .heads = 1,
                            .first_token = begin,
                            .tokens = end - begin};
      coding::SourceRows::OfBlock(&rows_, tokens, &memory_.rotator)
          .LoadUnscaled(0, 0, tokens.tokens, values);
    };
    if (role_ == TensorRole::kKey) {
      from_keys_ = AnalyzeKeys(geometry_, load, checkpoint_);
    }
    if (preset_.sharpening > 0) {
      preset_ = Refined(preset_, Repetition(geometry_, load, checkpoint_));
    }
  }

  // Cuts it into blocks.
  void Prepare() {
    std::vector<float>& weights = from_keys_.attention;
    if (weights.size() != geometry_.tokens()) weights.clear();
    if (attention_.size() != geometry_.tokens()) {
      attention_ = AttentionOf(geometry_.tokens(), weights, checkpoint_);
    }
    std::vector<int8_t> offsets(geometry_.tokens());
    if (role_ != TensorRole::kNone) {
      offsets = OffsetsOf(preset_, attention_, checkpoint_);
    }
    if (header_.norms) offsets[0] = kFirstValueOffset;
    encoders_.reserve(geometry_.block_count());
    for (uint64_t i = 0; i < geometry_.block_count(); ++i) {
      if (Stops(checkpoint_)) return;
      const Block block = geometry_.block(i);
      const uint64_t first = geometry_.RowBegin(block, 0);
      const BlockSource input = {
          .rows = &rows_,
          .source = bytes_ + first * DTypeSize(dtype_),
          .head_stride = geometry_.tokens() * geometry_.channels()};
      blocks_.push_back(block);
      encoders_.emplace_back(header_, geometry_, block, max_error_, dtype_,
                             input,
                             absl::MakeConstSpan(offsets).subspan(
                                 block.first_token, block.tokens));
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
    least_step_ = largest / kMaxSteps;
    const double size =
        count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
    const double coarser =
        rotations_.step_factor * (header_.trellis ? kTrellisSteps : 1);
    if (!preset_.steps.contract) {
      return coarser * size * PresetStep() *
             SharpnessFactor(preset_, from_keys_.sharpness);
    }
    const double rows = static_cast<double>(elements_) /
                        static_cast<double>(geometry_.channels());
    const double norm_square = header_.norms ? norm_squares / rows : 1;
    return norm_square == 0
               ? 0
               : coarser *
                     coding::ExpectedStep(elements_, square_sum_, norm_square);
  }

  // Quantizes all blocks, and measures what that loses.
  void QuantizeWith(double step) {
    header_.step = coding::RoundToStep(std::max(step, least_step_));
    if (std::abs(header_.step - bases_.step()) > kSameBases * bases_.step()) {
      bases_.MakeFor(header_.step, workers_);
    }
    ResizeInSlabs(checkpoint_, tensor_.bytes.size(), &*decoded_);
    distortion_ = DistortionAccumulator();
    sums_ = DistortionSums();
    std::vector<std::vector<DistortionSums>> lost(blocks_.size());
    ForEach(workers_, blocks_.size(), [&](size_t i, size_t place) {
      EncoderMemory& memory = memory_of_[place];
      if (Stops(memory.checkpoint)) return;
      lost[i] = encoders_[i].Quantize(
          bases_.Of(i), &memory,
          reinterpret_cast<uint8_t*>(decoded_->data()) +
              geometry_.RowBegin(blocks_[i], 0) * DTypeSize(dtype_));
    });
    if (Stops(checkpoint_)) return;
    for (const std::vector<DistortionSums>& of_block : lost) {
      for (const DistortionSums& of_head : of_block) {
        coding::AddDistortion(of_head, &sums_, &distortion_);
      }
    }
  }

  // What was quantized last; nothing when a block is larger than it may be, or
  // the checkpoint stops.
  std::optional<EncodedTensor> Write() {
    EncodedTensor result;
    const bool measures = measures_tokens_ && TokenAccumulator::Applies(spec_);
    std::vector<std::string> written(blocks_.size());
    std::atomic<bool> all_written{true};
    // What tokens lost takes as long as many blocks, so it is begun first.
    ForEach(workers_, blocks_.size() + 1, [&](size_t index, size_t place) {
      EncoderMemory& memory = memory_of_[place];
      if (Stops(memory.checkpoint) || !all_written) return;
      if (index > 0) {
        const size_t i = index - 1;
        if (!encoders_[i].Write(bases_.Of(i), bases_.SameAsBefore(i), &memory,
                                &written[i])) {
          all_written = false;
        }
      } else if (measures) {
        TokenAccumulator tokens(spec_);
        tokens.AddSource(tensor_.bytes);
        tokens.AddDecoded(*decoded_, memory.checkpoint);
        result.tokens = tokens.Compute();
      }
    });
    if (Stops(checkpoint_) || !all_written) return std::nullopt;
    coding::WriteTensorHeader(header_, &result.payload);
    size_t size = result.payload.size();
    for (const std::string& block : written) size += block.size();
    if (size > coding::MaxPayloadSize(elements_)) return std::nullopt;
    Reserve(size, &result.payload);
    for (std::string& block : written) {
      result.payload += block;
      std::string().swap(block);
    }
    if (tensor_.wants_decoded) result.decoded.swap(*decoded_);
    result.distortion = distortion_;
    result.key_hints.rope = rope_;
    result.key_hints.likelier_theta = likelier_theta_;
    return result;
  }

  // What all elements lose by what a sample did. With norms errors grow with
  // the values; without, the first token, which is not like the others, loses
  // next to nothing.
  DistortionSums Extend(const DistortionSums& sample) const {
    const double share = 1 - 1 / static_cast<double>(geometry_.tokens());
    const double factor = header_.norms
                              ? square_sum_ / sample.sum_x2
                              : share * static_cast<double>(elements_) /
                                    static_cast<double>(sample.count);
    DistortionSums all = {.count = elements_};
    all.sum_e2 = factor * sample.sum_e2;
    all.sum_x2 = square_sum_;
    all.sum_xy = all.sum_x2 + factor * (sample.sum_xy - sample.sum_x2);
    all.sum_y2 = all.sum_x2 + factor * (sample.sum_y2 - sample.sum_x2);
    return all;
  }

  // What the bounds are held against: a tensor with finer steps has narrower
  // ones.
  DistortionSums Bounded(const DistortionSums& sums) const {
    return coding::WithErrorsTimes(1 / rotations_.step_factor, sums);
  }

  // About the largest step that keeps the bounds, by trials from `step` on with
  // some of the tokens, in the bases of that step and without rotation.
  double SampleStep(double step) {
    const size_t stride =
        std::min({elements_ / kSample, kMaxStride,
                  geometry_.tokens() / geometry_.token_parts() / kMinSample});
    if (stride < 2) return step;
    header_.step = coding::RoundToStep(std::max(step, least_step_));
    bases_.MakeFor(header_.step, workers_);
    coding::TensorHeader header = header_;
    header.rotation.reset();
    header.sinks = 0;
    std::vector<std::optional<BlockEncoder>> samples(encoders_.size());
    ForEach(workers_, samples.size(), [&](size_t i, size_t place) {
      EncoderMemory& memory = memory_of_[place];
      if (Stops(memory.checkpoint)) return;
      samples[i].emplace(encoders_[i].Sample(header, stride, &memory.rotator));
    });
    if (Stops(checkpoint_)) return step;
    for (int trial = 0; trial < kSampleTrials; ++trial) {
      // The samples see the header's step.
      header.step = coding::RoundToStep(std::max(step, least_step_));
      const DistortionSums sums = QuantizeSamples(&samples);
      if (Stops(checkpoint_)) return step;
      if (sums.sum_e2 == 0) break;
      const double headroom = coding::Headroom(Bounded(Extend(sums)));
      if (!(headroom > 1 / kMaxHeadroom && headroom < kMaxHeadroom)) break;
      step *= std::pow(headroom, kStride);
      if (std::abs(headroom - 1) < kNear) break;
    }
    return step;
  }

  // What samples lose; anything when the checkpoint stops.
  DistortionSums QuantizeSamples(
      std::vector<std::optional<BlockEncoder>>* samples) {
    std::vector<std::vector<DistortionSums>> lost(samples->size());
    ForEach(workers_, samples->size(), [&](size_t i, size_t place) {
      EncoderMemory& memory = memory_of_[place];
      if (Stops(memory.checkpoint)) return;
      BlockEncoder& sample = *(*samples)[i];
      std::vector<uint8_t> decoded(geometry_.Elements(sample.block()) *
                                   DTypeSize(dtype_));
      lost[i] = sample.Quantize(bases_.Of(i), &memory, decoded.data());
    });
    DistortionAccumulator ignored;
    DistortionSums sums;
    for (const std::vector<DistortionSums>& of_block : lost) {
      for (const DistortionSums& of_head : of_block) {
        coding::AddDistortion(of_head, &sums, &ignored);
      }
    }
    return sums;
  }

  // Quantizes with the largest of a few steps that keeps the bounds. False when
  // none does, or the checkpoint stops.
  bool FindStep() {
    double best = 0;
    double best_bases = 0;  // the step of its bases
    double step = SampleStep(WantedStep());
    double last = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      QuantizeWith(last = step);
      if (Stops(checkpoint_)) return false;
      const DistortionSums bounded = Bounded(sums_);
      const bool keeps = coding::KeepsContract(bounded);
      if (keeps && step > best) {
        best = step;
        best_bases = bases_.step();
      }
      if (sums_.sum_e2 == 0) break;
      const double headroom = coding::Headroom(bounded);
      if (keeps && headroom < kEnough) break;
      // First a stride, then with care.
      step *=
          trial < 2 ? std::pow(headroom, kStride) : std::min(headroom, 0.999);
    }
    if (best == 0) return false;
    if (best != last) {
      if (bases_.step() != best_bases) bases_.MakeFor(best_bases, workers_);
      QuantizeWith(best);
    }
    return true;
  }

  const TensorSpec& spec_;
  const DType dtype_;
  Preset preset_;
  const Geometry geometry_;
  const WholeTensor& tensor_;
  const uint8_t* const bytes_;
  const size_t elements_;
  Checkpoint* const checkpoint_;
  Workers* const workers_;
  const bool measures_tokens_;
  TensorRole role_ = TensorRole::kNone;
  coding::RotationCandidates rotations_;
  std::optional<RopeFinding> rope_;
  std::optional<double> likelier_theta_;
  std::vector<float> attention_;  // of each token
  KeyHints from_keys_;
  coding::TensorHeader header_;
  float max_error_ = 0;
  size_t vectors_ = 0;  // most of a group
  std::vector<Block> blocks_;
  std::vector<BlockEncoder> encoders_;
  RunBases bases_;
  EncoderMemory memory_;
  AtPlaces<EncoderMemory> memory_of_;
  coding::SourceRows rows_;
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
  Preset refined;
  {
    Encoder encoder(spec, preset, hints, tensor);
    joint = encoder.Encode();
    refined = encoder.refined();
    told = encoder.TakeHints();
  }
  const double factor = SharpnessFactor(refined, told.sharpness);
  coding::StepOptions steps = refined.steps;
  steps.key_step *= factor;
  steps.value_step *= factor;
  if (!joint ||
      coding::MayFit(spec, steps, hints, tensor, joint->payload.size())) {
    EncodedTensor alone = coding::EncodeTensor(spec, steps, hints, tensor);
    if (!joint || alone.payload.size() <= joint->payload.size()) {
      joint = std::move(alone);
    }
  }
  if (spec.role == TensorRole::kKey) {
    told.rope = std::move(joint->key_hints.rope);
    told.likelier_theta = joint->key_hints.likelier_theta;
    joint->key_hints = std::move(told);
  }
  return *std::move(joint);
}

}  // namespace kvcompress::klt
