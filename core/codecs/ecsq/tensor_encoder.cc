// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/tensor_encoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "codecs/ecsq/block_encoder.h"
#include "codecs/ecsq/distortion.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/geometry.h"
#include "codecs/ecsq/int8_fallback.h"
#include "codecs/ecsq/rope.h"
#include "dtype/elements.h"

namespace kvcompress::ecsq {
namespace {

// Coding needs room above the largest value.
constexpr double kMostMagnitude = 0x1p96;
// The largest value has at most this many steps.
constexpr double kMostSteps = 0x1p14;

// What "contract" aims at; see core/FORMAT.md, "ecsq", for the reasons.
constexpr double kContractKeyStep = 0.335;
constexpr double kContractRmse = 0.097;
constexpr float kNormError = 0.455f;
constexpr float kPatchError = 0.49f;
constexpr float kOutlier = 1024;
constexpr size_t kOutlierShare = 64;  // one in so many elements
constexpr int kTrials = 24;

constexpr uint64_t kRecent = 32;

class Encoder {
 public:
  Encoder(const TensorSpec& spec, const Preset& preset,
          const EncodeHints& hints, absl::string_view bytes)
      : dtype_(spec.dtype),
        preset_(preset),
        geometry_(spec),
        bytes_(reinterpret_cast<const uint8_t*>(bytes.data())),
        source_(bytes.size() / DTypeSize(spec.dtype)) {
    LoadElements(dtype_, bytes_, absl::MakeSpan(source_));
    const TensorRole role =
        spec.shape.size() == 4 ? spec.role : TensorRole::kNone;
    header_.norms = role == TensorRole::kValue;
    header_.sinks = 1;
    header_.int8_sinks = !header_.norms;
    header_.sink_shift = header_.norms ? 3 : 0;
    if (preset.recent) {
      header_.recent =
          static_cast<uint16_t>(std::min(kRecent, geometry_.tokens() / 16));
      header_.recent_shift = 1;
    }
    choices_.rate_aware = !preset.contract;
    if (preset.contract) choices_.patch_error = kPatchError;
    rotate_ = role == TensorRole::kKey;
    theta_ = hints.rope_theta;
  }

  EncodedTensor Encode() {
    std::optional<EncodedTensor> coded;
    if (geometry_.codable() && Magnitude() <= kMostMagnitude) {
      Prepare();
      coded = SearchStep();
    }
    if (coded && coded_keeps_) return *std::move(coded);
    EncodedTensor integers = EncodeIntegers();
    const bool better = coded && !(preset_.contract && integers_keep_);
    return better ? *std::move(coded) : std::move(integers);
  }

 private:
  double Magnitude() const {
    float largest = 0;
    for (const float value : source_) {
      largest = std::max(largest, std::abs(value));
    }
    return largest;
  }

  // Makes values_ of source_: without what is patched, and without rotation.
  void Prepare() {
    values_ = source_;
    if (preset_.contract) HideOutliers(absl::MakeSpan(values_));
    if (!rotate_) return;
    header_.rotation =
        RemoveRotation(geometry_.heads(), geometry_.tokens(),
                       geometry_.channels(), theta_, values_.data());
  }

  template <typename Visit>
  void ForEachBlock(Visit visit) const {
    size_t first = 0;
    for (uint64_t i = 0; i < geometry_.block_count(); ++i) {
      const Block block = geometry_.block(i);
      const size_t elements = geometry_.Elements(block);
      const BlockInput input = {
          .values = absl::MakeConstSpan(values_).subspan(first, elements),
          .source = bytes_ + first * DTypeSize(dtype_)};
      if (!visit(block, first, input)) return;
      first += elements;
    }
  }

  // Root mean square of the tokens' norms, none above `most`.
  double NormSize(double most) const {
    double squares = 0;
    const size_t channels = geometry_.channels();
    const size_t rows = values_.size() / channels;
    for (size_t row = 0; row < rows; ++row) {
      const double norm =
          std::min<double>(NormOf(NormCode(absl::MakeConstSpan(values_).subspan(
                               row * channels, channels))),
                           most);
      squares += norm * norm;
    }
    return std::sqrt(squares / static_cast<double>(rows));
  }

  // The step that the preset asks for.
  double WantedStep() {
    Spread spread;
    ForEachBlock([&](const Block& block, size_t, const BlockInput& input) {
      const Spread one = Measure(header_, geometry_, block, choices_, input);
      spread.square_sum += one.square_sum;
      spread.count += one.count;
      spread.largest = std::max(spread.largest, one.largest);
      return true;
    });
    least_step_ = spread.largest / kMostSteps;
    const double size =
        spread.count == 0
            ? 0
            : std::sqrt(spread.square_sum / static_cast<double>(spread.count));
    if (!header_.norms) {
      const double step = preset_.key_step * size;
      return preset_.contract ? std::min(step, kContractKeyStep) : step;
    }
    const double step = preset_.value_step * size;
    if (!preset_.contract || step == 0) return step;
    const double norm = NormSize(2 * kNormError / step);
    return std::min(step, kContractRmse * std::sqrt(12.0) / norm);
  }

  // Codes with the wanted step; for "contract", with a smaller one until the
  // bounds hold. Nothing when that is larger than the fallback.
  std::optional<EncodedTensor> SearchStep() {
    double step = WantedStep();
    if (preset_.contract && header_.norms) choices_.norm_error = kNormError;
    std::optional<EncodedTensor> last;
    for (int trial = 0; trial < kTrials; ++trial) {
      header_.step = RoundToStep(std::max(step, least_step_));
      EncodedTensor coded;
      if (!EncodeBlocks(&coded)) break;
      const DistortionSums sums =
          Compare(dtype_, source_,
                  reinterpret_cast<const uint8_t*>(coded.decoded.data()),
                  &coded.distortion);
      last = std::move(coded);
      coded_keeps_ = !preset_.contract || KeepsContract(sums);
      if (coded_keeps_ || step < least_step_) break;
      const double rmse =
          std::sqrt(sums.sum_e2 / static_cast<double>(sums.count));
      step *= std::min(0.95, 0.0985 / rmse);
    }
    return last;
  }

  bool EncodeBlocks(EncodedTensor* coded) const {
    const size_t element_size = DTypeSize(dtype_);
    const uint64_t most = MaxPayloadSize(source_.size());
    coded->decoded.resize(source_.size() * element_size);
    WriteTensorHeader(header_, &coded->payload);
    bool fits = true;
    ForEachBlock(
        [&](const Block& block, size_t first, const BlockInput& input) {
          fits = EncodeBlock(header_, geometry_, block, choices_, dtype_, input,
                             &coded->payload,
                             reinterpret_cast<uint8_t*>(coded->decoded.data()) +
                                 first * element_size) &&
                 coded->payload.size() <= most;
          return fits;
        });
    return fits;
  }

  EncodedTensor EncodeIntegers() {
    EncodedTensor integers;
    integers.decoded.resize(source_.size() * DTypeSize(dtype_));
    uint8_t* const decoded =
        reinterpret_cast<uint8_t*>(integers.decoded.data());
    integers.payload.push_back(static_cast<char>(kModeInt8));
    EncodeInt8(dtype_, source_, &integers.payload, decoded);
    integers_keep_ =
        KeepsContract(Compare(dtype_, source_, decoded, &integers.distortion));
    return integers;
  }

  const DType dtype_;
  const Preset preset_;
  const Geometry geometry_;
  const uint8_t* const bytes_;
  std::vector<float> source_;
  std::vector<float> values_;
  TensorHeader header_;
  BlockChoices choices_;
  bool rotate_ = false;
  std::optional<double> theta_;
  double least_step_ = 0;
  bool coded_keeps_ = false;
  bool integers_keep_ = false;
};

}  // namespace

uint64_t MaxPayloadSize(uint64_t elements) {
  return elements == 0 ? 0 : 1 + Int8Size(elements);
}

void HideOutliers(absl::Span<float> values) {
  const auto is_outlier = [](float value) {
    return std::abs(value) > kOutlier;
  };
  const size_t outliers = static_cast<size_t>(
      std::count_if(values.begin(), values.end(), is_outlier));
  if (outliers <= values.size() / kOutlierShare) {
    std::replace_if(values.begin(), values.end(), is_outlier, 0.0f);
  }
}

EncodedTensor EncodeTensor(const TensorSpec& spec, const Preset& preset,
                           const EncodeHints& hints, absl::string_view bytes) {
  return Encoder(spec, preset, hints, bytes).Encode();
}

}  // namespace kvcompress::ecsq
