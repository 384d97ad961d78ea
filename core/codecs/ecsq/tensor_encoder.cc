// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/tensor_encoder.h"

#include <algorithm>
#include <bit>
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
#include "kernels/elements.h"

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
        values_(hints.buffers, &EncoderBuffers::values),
        decoded_(hints.buffers, &EncoderBuffers::decoded) {
    values_->resize(bytes.size() / DTypeSize(spec.dtype));
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
    const float largest = std::bit_cast<float>(
        LoadElements(dtype_, bytes_, absl::MakeSpan(*values_)));
    std::optional<EncodedTensor> coded;
    if (geometry_.codable() && largest <= kMostMagnitude) {
      if (preset_.contract) HideOutliers(largest, absl::MakeSpan(*values_));
      if (rotate_) {
        header_.rotation = RemoveRotation(geometry_.heads(), geometry_.tokens(),
                                          geometry_.channels(), theta_,
                                          &rotator_, values_->data());
      }
      if (header_.norms) Normalize();
      coded = SearchStep();
    }
    if (coded && coded_keeps_) return *std::move(coded);
    EncodedTensor integers = EncodeIntegers();
    const bool better = coded && !(preset_.contract && integers_keep_);
    return better ? *std::move(coded) : std::move(integers);
  }

 private:
  // Visits each block and the index of its first element.
  template <typename Visit>
  void ForEachBlock(Visit visit) const {
    size_t first = 0;
    for (uint64_t i = 0; i < geometry_.block_count(); ++i) {
      const Block block = geometry_.block(i);
      if (!visit(i, block, first)) return;
      first += geometry_.Elements(block);
    }
  }

  absl::Span<float> Row(size_t row) {
    return absl::MakeSpan(*values_).subspan(row * geometry_.channels(),
                                            geometry_.channels());
  }

  // Divides each token by its norm, if it has one.
  void Normalize() {
    full_norms_.resize(geometry_.heads() * geometry_.tokens());
    for (size_t row = 0; row < full_norms_.size(); ++row) {
      full_norms_[row] = NormCode(Row(row));
      const float norm = NormOf(full_norms_[row]);
      const float inverse = norm == 0 ? 0 : 1 / norm;
      for (float& value : Row(row)) value *= inverse;
    }
    norms_ = full_norms_;
  }

  // Lowers the norms of tokens whose elements could otherwise be more than
  // kNormError off.
  void BoundNorms() {
    for (size_t row = 0; row < norms_.size(); ++row) {
      const int shift =
          header_.ShiftOf(row % geometry_.tokens(), geometry_.tokens());
      const float most =
          2 * kNormError * static_cast<float>(1 << shift) / header_.step;
      const uint16_t most_code = static_cast<uint16_t>(
          std::max<uint32_t>(std::bit_cast<uint32_t>(most) >> 20, 1));
      const uint16_t code = std::min(full_norms_[row], most_code);
      if (code == norms_[row]) continue;
      const float factor = NormOf(norms_[row]) / NormOf(code);
      for (float& value : Row(row)) value *= factor;
      norms_[row] = code;
      statistics_.clear();
    }
  }

  // Root mean square of the tokens' norms, none above `most`.
  double NormSize(double most) const {
    double squares = 0;
    for (const uint16_t code : full_norms_) {
      const double norm = std::min<double>(NormOf(code), most);
      squares += norm * norm;
    }
    return std::sqrt(squares / static_cast<double>(full_norms_.size()));
  }

  void MeasureBlocks() {
    if (!statistics_.empty()) return;
    ForEachBlock([&](uint64_t, const Block& block, size_t first) {
      statistics_.push_back(Measure(header_, geometry_, block,
                                    absl::MakeConstSpan(*values_).subspan(
                                        first, geometry_.Elements(block))));
      return true;
    });
  }

  // The step that the preset asks for.
  double WantedStep() {
    MeasureBlocks();
    double square_sum = 0;
    uint64_t count = 0;
    for (const ChannelStatistics& block : statistics_) {
      square_sum += block.square_sum;
      count += block.count;
      least_step_ = std::max(least_step_, block.largest / kMostSteps);
    }
    const double size =
        count == 0 ? 0 : std::sqrt(square_sum / static_cast<double>(count));
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
    std::optional<EncodedTensor> last;
    for (int trial = 0; trial < kTrials; ++trial) {
      header_.step = RoundToStep(std::max(step, least_step_));
      if (preset_.contract) BoundNorms();
      EncodedTensor coded;
      coded.decoded.swap(*decoded_);
      DistortionSums sums;
      if (!EncodeBlocks(&coded, &sums)) break;
      if (last) decoded_->swap(last->decoded);
      last = std::move(coded);
      coded_keeps_ = !preset_.contract || KeepsContract(sums);
      if (coded_keeps_ || step < least_step_) break;
      const double rmse =
          std::sqrt(sums.sum_e2 / static_cast<double>(sums.count));
      step *= std::min(0.95, 0.0985 / rmse);
    }
    return last;
  }

  bool EncodeBlocks(EncodedTensor* coded, DistortionSums* all) {
    MeasureBlocks();
    const size_t element_size = DTypeSize(dtype_);
    const uint64_t most = MaxPayloadSize(values_->size());
    coded->decoded.resize(values_->size() * element_size);
    WriteTensorHeader(header_, &coded->payload);
    bool fits = true;
    ForEachBlock([&](uint64_t index, const Block& block, size_t first) {
      BlockInput input = {.values = absl::MakeConstSpan(*values_).subspan(
                              first, geometry_.Elements(block)),
                          .source = bytes_ + first * element_size};
      if (header_.norms) {
        input.norms = absl::MakeConstSpan(norms_).subspan(
            first / geometry_.channels(), block.heads * block.tokens);
      }
      DistortionSums sums;
      fits = EncodeBlock(header_, geometry_, block, choices_, dtype_, input,
                         statistics_[index], &rotator_, &coded->payload,
                         reinterpret_cast<uint8_t*>(coded->decoded.data()) +
                             first * element_size,
                         &sums) &&
             coded->payload.size() <= most;
      AddDistortion(sums, all, &coded->distortion);
      return fits;
    });
    return fits;
  }

  EncodedTensor EncodeIntegers() {
    LoadElements(dtype_, bytes_, absl::MakeSpan(*values_));
    EncodedTensor integers;
    integers.decoded.resize(values_->size() * DTypeSize(dtype_));
    uint8_t* const decoded =
        reinterpret_cast<uint8_t*>(integers.decoded.data());
    integers.payload.push_back(static_cast<char>(kModeInt8));
    EncodeInt8(dtype_, *values_, &integers.payload, decoded);
    DistortionSums sums;
    AddDistortion(CompareElements(dtype_, bytes_, decoded, values_->size()),
                  &sums, &integers.distortion);
    integers_keep_ = KeepsContract(sums);
    return integers;
  }

  const DType dtype_;
  const Preset preset_;
  const Geometry geometry_;
  const uint8_t* const bytes_;
  // Without what is patched, without rotation and over the norms.
  Borrowed<std::vector<float>> values_;
  Borrowed<std::string> decoded_;     // room for what the next trial decodes to
  std::vector<uint16_t> full_norms_;  // codes, of each token of each head
  std::vector<uint16_t> norms_;       // the same, bounded
  std::vector<ChannelStatistics> statistics_;  // of the blocks, or empty
  TensorHeader header_;
  BlockChoices choices_;
  Rotator rotator_;
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

void HideOutliers(float largest, absl::Span<float> values) {
  if (largest <= kOutlier) return;
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
