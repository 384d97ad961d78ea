// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/tensor_encoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "coding/format.h"
#include "coding/geometry.h"
#include "coding/identity/block_encoder.h"
#include "coding/identity/source_rows.h"
#include "kernels/elements.h"
#include "kernels/lane_sums.h"
#include "metrics/token_quality.h"
#include "quantization/distortion.h"
#include "quantization/int8.h"
#include "quantization/rope.h"
#include "quantization/rope_candidates.h"
#include "quantization/steps.h"
#include "tensor/slabs.h"

namespace kvcompress::coding {
namespace {

// Coding needs headroom above the largest value.
constexpr double kMaxMagnitude = 0x1p96;
// The largest value has at most this many steps.
constexpr double kMaxSteps = 0x1p14;

// The targets of "contract"; see core/FORMAT.md, "ecsq", for the reasons.
constexpr double kContractKeyStep = 0.335;
constexpr double kContractRmse = 0.097;
constexpr float kMaxError = 0.49f;
constexpr int kTrials = 24;

constexpr uint64_t kRecent = 32;

class Encoder {
 public:
  Encoder(const TensorSpec& spec, const StepOptions& preset,
          const EncodeHints& hints, const WholeTensor& tensor)
      : spec_(spec),
        dtype_(spec.dtype),
        preset_(preset),
        geometry_(spec, Cut::kConsecutive),
        tensor_(tensor),
        checkpoint_(hints.checkpoint),
        source_(reinterpret_cast<const uint8_t*>(tensor.bytes.data())),
        elements_(tensor.bytes.size() / DTypeSize(spec.dtype)),
        buffers_(hints.buffers == nullptr ? own_buffers_ : *hints.buffers),
        rows_(header_, geometry_, dtype_, source_, &rotator_) {
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
    if (preset.contract) choices_.max_error = kMaxError;
    rotations_ = CandidatesFor(spec, role, hints, geometry_.channels());
  }

  EncodedTensor Encode() {
    std::optional<EncodedTensor> coded;
    if (Analyze()) coded = SearchStep();
    if (coded) coded->key_hints.rope = std::move(rope_);
    if (coded && coded_keeps_) return *std::move(coded);
    EncodedTensor integers = EncodeIntegers();
    const bool better = coded && !(preset_.contract && integers_keep_);
    return better ? *std::move(coded) : std::move(integers);
  }

  // By the first step: finer ones and exceptions only add.
  bool MayFit(uint64_t most) {
    if (MaxPayloadSize(elements_) <= most || !Analyze()) return true;
    SetStep(WantedStep());
    if (Stops(checkpoint_)) return true;
    EncodedTensor coded;
    DistortionSums sums;
    return EncodeBlocks(most, false, &coded, &sums);
  }

 private:
  // Hides outliers and finds the rotation. False when it is not to be coded, or
  // the checkpoint stops.
  bool Analyze() {
    if (!geometry_.codable() || tensor_.largest > kMaxMagnitude) return false;
    if (preset_.contract) {
      rows_.HideOutliers(tensor_.largest, elements_, checkpoint_);
    }
    if (auto found = rows_.FindRotation(rotations_, checkpoint_)) {
      header_.rotation = std::move(found->rotation);
      rope_ = std::move(found->finding);
    }
    return !Stops(checkpoint_);
  }

  void SetStep(double step) {
    header_.step = RoundToStep(std::max(step, least_step_));
    if (header_.norms && preset_.contract) BoundNorms();
  }

  // Visits each block and the index of its first element, until a visit gives
  // false or the checkpoint stops.
  template <typename Visit>
  void ForEachBlock(Visit visit) const {
    size_t first = 0;
    for (uint64_t i = 0; i < geometry_.block_count(); ++i) {
      if (Stops(checkpoint_)) return;
      const Block block = geometry_.block(i);
      if (!visit(i, block, first)) return;
      first += geometry_.Elements(block);
    }
  }

  // Lowers the norms of tokens whose elements could otherwise be too far off.
  void BoundNorms() {
    rows_.AddNormBounds(checkpoint_);
    ForEachBlock([&](uint64_t index, const Block& block, size_t first) {
      if (rows_.BoundNorms(block, first)) {
        statistics_[index] = MeasureBlock(block);
      }
      return true;
    });
  }

  // Root mean square of the tokens' norms, none above `most`.
  double NormSize(double most) const {
    const absl::Span<const uint16_t> norms = rows_.full_norms();
    double squares = 0;
    InSlabs(checkpoint_, norms.size(), [&](size_t first, size_t count) {
      for (const uint16_t code : norms.subspan(first, count)) {
        const double norm = std::min<double>(NormOf(code), most);
        squares += norm * norm;
      }
    });
    return std::sqrt(squares / static_cast<double>(rows_.full_norms().size()));
  }

  ChannelStatistics MeasureBlock(const Block& block) {
    return Measure(header_, geometry_, block,
                   SourceRows::OfBlock(&rows_, block), &buffers_);
  }

  // The step that the preset asks for, of this tensor.
  double WantedStep() { return rotations_.step_factor * UsualStep(); }

  double UsualStep() {
    ForEachBlock([&](uint64_t, const Block& block, size_t) {
      statistics_.push_back(MeasureBlock(block));
      return true;
    });
    double square_sum = 0;
    uint64_t count = 0;
    for (const ChannelStatistics& block : statistics_) {
      square_sum += block.square_sum;
      count += block.count;
      least_step_ = std::max(least_step_, block.largest / kMaxSteps);
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
    for (int trial = 0; trial < kTrials && !Stops(checkpoint_); ++trial) {
      SetStep(step);
      EncodedTensor coded;
      if (tensor_.wants_decoded) coded.decoded.swap(buffers_.decoded);
      DistortionSums sums;
      if (!EncodeBlocks(MaxPayloadSize(elements_), true, &coded, &sums)) break;
      if (last && tensor_.wants_decoded) buffers_.decoded.swap(last->decoded);
      last = std::move(coded);
      coded_keeps_ = !preset_.contract || KeepsContract(sums);
      if (coded_keeps_ || step < least_step_) break;
      const double rmse =
          std::sqrt(sums.sum_e2 / static_cast<double>(sums.count));
      step *= std::min(0.95, 0.0985 / rmse);
    }
    return last;
  }

  // False when the payload has more bytes than `most`, or the checkpoint stops.
  // Without `decodes` nothing is decoded, measured or stored as an exception.
  bool EncodeBlocks(uint64_t most, bool decodes, EncodedTensor* coded,
                    DistortionSums* all) {
    const size_t element_size = DTypeSize(dtype_);
    coded->decoded.clear();
    if (tensor_.wants_decoded) coded->decoded.reserve(tensor_.bytes.size());
    WriteTensorHeader(header_, &coded->payload);
    std::optional<TokenAccumulator> tokens;
    if (decodes && TokenAccumulator::Applies(spec_)) tokens.emplace(spec_);
    bool fits = true;
    ForEachBlock([&](uint64_t index, const Block& block, size_t first) {
      const SourceRows::OfBlock rows(&rows_, block);
      BlockInput input = {.load = rows,
                          .source = source_ + first * element_size};
      if (header_.norms) {
        input.norms = rows_.norms().subspan(first / geometry_.channels(),
                                            block.heads * block.tokens);
      }
      const size_t size = geometry_.Elements(block) * element_size;
      uint8_t* const decoded = decodes ? RoomFor(size, coded) : nullptr;
      DistortionSums sums;
      fits = EncodeBlock(header_, geometry_, block, choices_, dtype_, input,
                         statistics_[index], &rotator_, &buffers_,
                         &coded->payload, decoded, &sums) &&
             coded->payload.size() <= most;
      AddDistortion(sums, all, &coded->distortion);
      if (fits && tokens) AddTokens(first, decoded, size, &*tokens);
      if (index == 0) ReserveLike(coded->payload.size(), &coded->payload);
      return fits;
    });
    if (tokens) coded->tokens = tokens->Compute();
    return fits && !Stops(checkpoint_);
  }

  // Measures what became of the `size` bytes from element `first` on.
  void AddTokens(size_t first, const uint8_t* decoded, size_t size,
                 TokenAccumulator* tokens) const {
    tokens->AddSource(tensor_.bytes.substr(first * DTypeSize(dtype_), size));
    tokens->AddDecoded({reinterpret_cast<const char*>(decoded), size},
                       checkpoint_);
  }

  // Room for the next decoded bytes: at the end of what was asked for, or
  // none that lasts.
  uint8_t* RoomFor(size_t size, EncodedTensor* coded) {
    if (tensor_.wants_decoded) {
      coded->decoded.resize(coded->decoded.size() + size);
      return reinterpret_cast<uint8_t*>(coded->decoded.data() +
                                        coded->decoded.size() - size);
    }
    if (buffers_.decoded.size() < size) buffers_.decoded.resize(size);
    return reinterpret_cast<uint8_t*>(buffers_.decoded.data());
  }

  // Room for all blocks if each takes about as much as the first.
  void ReserveLike(size_t block, std::string* payload) const {
    const uint64_t blocks = geometry_.block_count();
    if (blocks > 1) payload->reserve(block * blocks + block * blocks / 16);
  }

  EncodedTensor EncodeIntegers() {
    EncodedTensor integers;
    integers.payload.push_back(static_cast<char>(kModeInt8));
    if (tensor_.wants_decoded) integers.decoded.reserve(tensor_.bytes.size());
    std::vector<float> values(kTileElements);
    kernels::LaneSums lanes;
    std::optional<TokenAccumulator> tokens;
    if (TokenAccumulator::Applies(spec_)) tokens.emplace(spec_);
    const auto compare =
        kernels::Active().rows.compare[static_cast<int>(dtype_)];
    static_assert(kTileElements % kInt8Group == 0);
    static_assert(kSlab % kTileElements == 0);
    InSlabs(checkpoint_, elements_, [&](size_t begin, size_t slab) {
      for (size_t i = 0; i < slab; i += kTileElements) {
        const size_t first = begin + i;
        const size_t count = std::min(kTileElements, slab - i);
        const auto part = absl::MakeSpan(values).first(count);
        rows_.LoadSource(first, part);
        uint8_t* const decoded = RoomFor(count * DTypeSize(dtype_), &integers);
        EncodeInt8(dtype_, part, &integers.payload, decoded);
        compare(source_ + first * DTypeSize(dtype_), decoded, 0, count, &lanes);
        if (tokens) {
          AddTokens(first, decoded, count * DTypeSize(dtype_), &*tokens);
        }
      }
    });
    if (tokens) integers.tokens = tokens->Compute();
    DistortionSums sums;
    AddDistortion(lanes.Total(elements_), &sums, &integers.distortion);
    integers_keep_ = KeepsContract(sums);
    return integers;
  }

  const TensorSpec& spec_;
  const DType dtype_;
  const StepOptions preset_;
  const Geometry geometry_;
  const WholeTensor& tensor_;
  Checkpoint* const checkpoint_;
  const uint8_t* const source_;
  const size_t elements_;
  TensorHeader header_;
  Rotator rotator_;
  EncoderBuffers own_buffers_;
  EncoderBuffers& buffers_;
  SourceRows rows_;
  std::vector<ChannelStatistics> statistics_;  // of the blocks
  BlockChoices choices_;
  RotationCandidates rotations_;
  std::optional<RopeFinding> rope_;
  double least_step_ = 0;
  bool coded_keeps_ = false;
  bool integers_keep_ = false;
};

}  // namespace

uint64_t MaxPayloadSize(uint64_t elements) {
  return elements == 0 ? 0 : 1 + Int8Size(elements);
}

bool MayFit(const TensorSpec& spec, const StepOptions& preset,
            const EncodeHints& hints, const WholeTensor& tensor,
            uint64_t most) {
  return Encoder(spec, preset, hints, tensor).MayFit(most);
}

EncodedTensor EncodeTensor(const TensorSpec& spec, const StepOptions& preset,
                           const EncodeHints& hints,
                           const WholeTensor& tensor) {
  return Encoder(spec, preset, hints, tensor).Encode();
}

}  // namespace kvcompress::coding
