// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
// More than 400 lines: search and coding share the state of a tensor.

#include "coding/identity/tensor_encoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
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
#include "tensor/grow.h"
#include "tensor/slabs.h"
#include "tensor/workers.h"

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

// Blocks that are encoded between two looks at how large the payload is, and
// whose elements wait for being measured, for each place that works on them.
constexpr size_t kBlocksOfPlace = 3;

// What blocks are encoded in, one after the other.
struct PlaceMemory {
  explicit PlaceMemory(Checkpoint* its_checkpoint)
      : PlaceMemory(nullptr, its_checkpoint) {}
  PlaceMemory(EncoderBuffers* its_buffers, Checkpoint* its_checkpoint)
      : checkpoint(its_checkpoint),
        buffers(its_buffers == nullptr ? own : *its_buffers) {}

  Checkpoint* const checkpoint;
  Rotator rotator;
  EncoderBuffers own;
  EncoderBuffers& buffers;
};

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
        workers_(hints.workers),
        measures_tokens_(hints.measures_tokens &&
                         TokenAccumulator::Applies(spec)),
        source_(reinterpret_cast<const uint8_t*>(tensor.bytes.data())),
        elements_(tensor.bytes.size() / DTypeSize(spec.dtype)),
        memory_(hints.buffers, checkpoint_),
        memory_of_(workers_, &memory_, checkpoint_),
        buffers_(memory_.buffers),
        rows_(header_, geometry_, dtype_, source_) {
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
    if (coded) {
      coded->key_hints.rope = std::move(rope_);
      coded->key_hints.likelier_theta = likelier_theta_;
    }
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
    if (auto found =
            rows_.FindRotation(rotations_, &likelier_theta_, checkpoint_)) {
      header_.rotation = std::move(found->rotation);
      rope_ = std::move(found->finding);
    }
    return !Stops(checkpoint_);
  }

  void SetStep(double step) {
    header_.step = RoundToStep(std::max(step, least_step_));
    if (header_.norms && preset_.contract) BoundNorms();
  }

  // Visits each block and what it is to be worked on in, until the checkpoint
  // stops.
  template <typename Visit>
  void ForEachBlock(Visit visit) {
    ForEach(workers_, geometry_.block_count(), [&](size_t i, size_t place) {
      PlaceMemory& memory = memory_of_[place];
      if (!Stops(memory.checkpoint)) visit(i, geometry_.block(i), &memory);
    });
  }

  // Lowers the norms of tokens whose elements could otherwise be too far off.
  void BoundNorms() {
    rows_.AddNormBounds(checkpoint_);
    ForEachBlock([&](size_t index, const Block& block, PlaceMemory* memory) {
      if (rows_.BoundNorms(block, geometry_.RowBegin(block, 0))) {
        statistics_[index] = MeasureBlock(block, memory);
      }
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

  ChannelStatistics MeasureBlock(const Block& block, PlaceMemory* memory) {
    return Measure(header_, geometry_, block,
                   SourceRows::OfBlock(&rows_, block, &memory->rotator),
                   &memory->buffers);
  }

  // The step that the preset asks for, of this tensor.
  double WantedStep() { return rotations_.step_factor * UsualStep(); }

  double UsualStep() {
    if (header_.norms) rows_.MakeRoomForNorms();
    statistics_.resize(geometry_.block_count());
    ForEachBlock([&](size_t index, const Block& block, PlaceMemory* memory) {
      statistics_[index] = MeasureBlock(block, memory);
    });
    rows_.KeepNorms();
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
      coded.payload.swap(buffers_.payload);
      if (tensor_.wants_decoded) coded.decoded.swap(buffers_.decoded);
      DistortionSums sums;
      if (!EncodeBlocks(MaxPayloadSize(elements_), true, &coded, &sums)) break;
      if (last) buffers_.payload.swap(last->payload);
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

  // What a block became.
  struct EncodedBlock {
    bool fits = false;
    std::string payload;
    DistortionSums sums;
  };

  // False when the payload has more bytes than `most`, or the checkpoint stops.
  // Without `decodes` nothing is decoded, measured or stored as an exception.
  // Works on a part of the blocks after the other, and while it does measures
  // what became of the part before.
  bool EncodeBlocks(uint64_t most, bool decodes, EncodedTensor* coded,
                    DistortionSums* all) {
    const size_t blocks = geometry_.block_count();
    const size_t places = PlacesOf(workers_);
    const size_t at_once = places == 1 ? 1 : kBlocksOfPlace * places;
    coded->payload.clear();
    coded->decoded.clear();
    if (decodes) MakeRoomForDecoded(at_once, coded);
    WriteTensorHeader(header_, &coded->payload);
    std::optional<TokenAccumulator> tokens;
    if (decodes && measures_tokens_) tokens.emplace(spec_);
    size_t measured = 0;
    for (size_t begin = 0; begin < blocks; begin += at_once) {
      const size_t end = std::min(begin + at_once, blocks);
      std::vector<EncodedBlock> encoded(end - begin);
      ForEach(workers_, end - begin + 1, [&](size_t index, size_t place) {
        PlaceMemory& memory = memory_of_[place];
        if (Stops(memory.checkpoint)) return;
        if (index > 0) {
          EncodeOneBlock(begin + index - 1, decodes, &memory, coded,
                         &encoded[index - 1]);
        } else if (tokens) {
          AddTokensOf(measured, begin, coded, memory.checkpoint, &*tokens);
        }
      });
      measured = begin;
      if (Stops(checkpoint_)) return false;
      for (const EncodedBlock& block : encoded) {
        coded->payload += block.payload;
        AddDistortion(block.sums, all, &coded->distortion);
        if (!block.fits || coded->payload.size() > most) return false;
        if (begin == 0 && &block == &encoded[0]) {
          ReserveLike(coded->payload.size(), &coded->payload);
        }
      }
    }
    if (tokens) {
      AddTokensOf(measured, blocks, coded, checkpoint_, &*tokens);
      coded->tokens = tokens->Compute();
    }
    return !Stops(checkpoint_);
  }

  void EncodeOneBlock(size_t index, bool decodes, PlaceMemory* memory,
                      EncodedTensor* coded, EncodedBlock* encoded) {
    const Block block = geometry_.block(index);
    const size_t first = geometry_.RowBegin(block, 0);
    const SourceRows::OfBlock rows(&rows_, block, &memory->rotator);
    BlockInput input = {.load = rows,
                        .source = source_ + first * DTypeSize(dtype_)};
    if (header_.norms) {
      input.norms = rows_.norms().subspan(first / geometry_.channels(),
                                          block.heads * block.tokens);
    }
    uint8_t* const decoded = decodes ? DecodedOf(index, coded) : nullptr;
    encoded->fits =
        EncodeBlock(header_, geometry_, block, choices_, dtype_, input,
                    statistics_[index], &memory->rotator, &memory->buffers,
                    &encoded->payload, decoded, &encoded->sums);
  }

  // Where decoded elements are: all of them if they were asked for, else those
  // of so many blocks and of as many that wait for being measured.
  void MakeRoomForDecoded(size_t at_once, EncodedTensor* coded) {
    if (tensor_.wants_decoded) {
      ResizeInSlabs(checkpoint_, tensor_.bytes.size(), &coded->decoded);
      return;
    }
    if (geometry_.block_count() == 0) return;
    decoded_block_ = geometry_.Elements(geometry_.block(0)) * DTypeSize(dtype_);
    decoded_blocks_ = std::min<size_t>(2 * at_once, geometry_.block_count());
    const size_t size = decoded_block_ * decoded_blocks_;
    if (buffers_.decoded.size() < size) buffers_.decoded.resize(size);
  }

  uint8_t* DecodedOf(size_t index, EncodedTensor* coded) {
    if (!tensor_.wants_decoded) {
      return reinterpret_cast<uint8_t*>(buffers_.decoded.data()) +
             index % decoded_blocks_ * decoded_block_;
    }
    return reinterpret_cast<uint8_t*>(coded->decoded.data()) +
           geometry_.RowBegin(geometry_.block(index), 0) * DTypeSize(dtype_);
  }

  // Measures what became of blocks.
  void AddTokensOf(size_t begin, size_t end, EncodedTensor* coded,
                   Checkpoint* checkpoint, TokenAccumulator* tokens) {
    for (size_t index = begin; index < end; ++index) {
      if (Stops(checkpoint)) return;
      const Block block = geometry_.block(index);
      const size_t size = geometry_.Elements(block) * DTypeSize(dtype_);
      AddTokens(geometry_.RowBegin(block, 0), DecodedOf(index, coded), size,
                checkpoint, tokens);
    }
  }

  // Measures what became of the `size` bytes from element `first` on.
  void AddTokens(size_t first, const uint8_t* decoded, size_t size,
                 Checkpoint* checkpoint, TokenAccumulator* tokens) const {
    tokens->AddSource(tensor_.bytes.substr(first * DTypeSize(dtype_), size));
    tokens->AddDecoded({reinterpret_cast<const char*>(decoded), size},
                       checkpoint);
  }

  // Space for the next decoded bytes: at the end of what was asked for, or
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

  // Space for all blocks if each takes about as much as the first.
  void ReserveLike(size_t block, std::string* payload) const {
    const uint64_t blocks = geometry_.block_count();
    if (blocks > 1) Reserve(block * blocks + block * blocks / 16, payload);
  }

  EncodedTensor EncodeIntegers() {
    EncodedTensor integers;
    integers.payload.push_back(static_cast<char>(kModeInt8));
    if (tensor_.wants_decoded) integers.decoded.reserve(tensor_.bytes.size());
    std::vector<float> values(kTileElements);
    kernels::LaneSums lanes;
    std::optional<TokenAccumulator> tokens;
    if (measures_tokens_) tokens.emplace(spec_);
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
          AddTokens(first, decoded, count * DTypeSize(dtype_), checkpoint_,
                    &*tokens);
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
  Workers* const workers_;
  const bool measures_tokens_;
  const uint8_t* const source_;
  const size_t elements_;
  TensorHeader header_;
  PlaceMemory memory_;
  AtPlaces<PlaceMemory> memory_of_;
  EncoderBuffers& buffers_;    // of the first place
  size_t decoded_block_ = 0;   // bytes of one that is kept
  size_t decoded_blocks_ = 0;  // that are
  SourceRows rows_;
  std::vector<ChannelStatistics> statistics_;  // of the blocks
  BlockChoices choices_;
  RotationCandidates rotations_;
  std::optional<RopeFinding> rope_;
  std::optional<double> likelier_theta_;
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
