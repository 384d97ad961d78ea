// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/block_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codecs/ecsq/class_choice.h"
#include "codecs/ecsq/lists.h"
#include "codecs/ecsq/reconstruct.h"
#include "codecs/ecsq/symbol_writer.h"
#include "codecs/ecsq/tables.h"
#include "dtype/elements.h"

namespace kvcompress::ecsq {
namespace {

// Squared error, in squared steps, that a bit is worth.
constexpr float kErrorPerBit = 0.025f;

// Channels that are quantized together; their histograms stay in the cache.
constexpr size_t kTile = 32;

void PutBytes(const void* bytes, size_t size, std::string* out) {
  out->append(static_cast<const char*>(bytes), size);
}

class Encoder {
 public:
  Encoder(const TensorHeader& header, const Geometry& geometry,
          const Block& block, const BlockChoices& choices,
          const BlockInput& input)
      : header_(header),
        geometry_(geometry),
        block_(block),
        choices_(choices),
        input_(input),
        channels_(geometry.channels()),
        all_channels_(block.heads * channels_),
        lanes_(geometry.Lanes(block)),
        int8_sinks_(header.Int8Sinks(block)) {
    Normalize();
    MeasureChannels();
  }

  Spread spread() const { return spread_; }

  bool Encode(DType dtype, std::string* payload, uint8_t* decoded) {
    SetMeans();
    content_.quanta.resize(values_.size());
    content_.side.classes.resize(all_channels_);
    for (size_t h = 0; h < block_.heads; ++h) {
      for (size_t c = 0; c < channels_; c += kTile) {
        Quantize(h, c, std::min(kTile, channels_ - c));
      }
    }
    EncodeSinks(dtype);
    return Write(dtype, payload, decoded);
  }

 private:
  int ShiftOf(size_t t) const {
    return header_.ShiftOf(block_.first_token + t, geometry_.tokens());
  }
  bool IsSink(size_t t) const { return block_.first_token + t < header_.sinks; }
  // Of the first token of a channel; its tokens are channels_ apart.
  size_t PositionOf(size_t channel) const {
    return channel / channels_ * block_.tokens * channels_ +
           channel % channels_;
  }

  // Divides each token by its norm, if it has one.
  void Normalize() {
    values_.assign(input_.values.begin(), input_.values.end());
    if (!header_.norms) return;
    content_.side.norms.resize(block_.heads * block_.tokens);
    for (size_t row = 0; row < content_.side.norms.size(); ++row) {
      const absl::Span<float> token =
          absl::MakeSpan(values_).subspan(row * channels_, channels_);
      uint16_t code = NormCode(token);
      if (choices_.norm_error > 0) {
        const int shift = ShiftOf(row % block_.tokens);
        const float most = 2 * choices_.norm_error *
                           static_cast<float>(1 << shift) / header_.step;
        const uint32_t most_code = std::bit_cast<uint32_t>(most) >> 20;
        code = static_cast<uint16_t>(
            std::min<uint32_t>(code, std::max<uint32_t>(most_code, 1)));
      }
      content_.side.norms[row] = code;
      const float norm = NormOf(code);
      for (float& value : token) value = code == 0 ? 0 : value / norm;
    }
  }

  // Sums go token by token, so that memory is read in its order; each
  // channel's own have the order of the tokens.
  void MeasureChannels() {
    means_.assign(all_channels_, 0);
    variances_.assign(all_channels_, 0);
    const uint64_t first = std::min<uint64_t>(
        block_.tokens, header_.sinks > block_.first_token
                           ? header_.sinks - block_.first_token
                           : 0);
    const uint64_t count = block_.tokens - first;
    if (count == 0) return;
    float largest = 0;
    for (size_t h = 0; h < block_.heads; ++h) {
      double* const means = &means_[h * channels_];
      double* const variances = &variances_[h * channels_];
      for (size_t t = first; t < block_.tokens; ++t) {
        const float* const row = &values_[(h * block_.tokens + t) * channels_];
        for (size_t c = 0; c < channels_; ++c) {
          means[c] += row[c];
          largest = std::max(largest, std::abs(row[c]));
        }
      }
      for (size_t c = 0; c < channels_; ++c) {
        means[c] /= static_cast<double>(count);
      }
      for (size_t t = first; t < block_.tokens; ++t) {
        const float* const row = &values_[(h * block_.tokens + t) * channels_];
        for (size_t c = 0; c < channels_; ++c) {
          const double difference = row[c] - means[c];
          variances[c] += difference * difference;
        }
      }
    }
    spread_.largest = largest;
    for (double& variance : variances_) {
      spread_.square_sum += variance;
      spread_.count += count;
      variance /= static_cast<double>(count);
    }
  }

  void SetMeans() {
    content_.side.means.resize(all_channels_);
    const double unit = static_cast<double>(header_.step) / 8;
    for (size_t channel = 0; channel < all_channels_; ++channel) {
      content_.side.means[channel] = static_cast<int32_t>(std::clamp<double>(
          std::round(means_[channel] / unit), -kMaxMean, kMaxMean));
    }
  }

  // Quantizes `size` channels of head `h` from the channel `first` on, token by
  // token, so that memory is read in its order.
  void Quantize(size_t h, size_t first, size_t size) {
    const double step = header_.step;
    int klass[kTile];
    float mean[kTile];
    for (size_t c = 0; c < size; ++c) {
      const size_t channel = h * channels_ + first + c;
      klass[c] = ClassOf(variances_[channel] / step / step);
      mean[c] = static_cast<float>(content_.side.means[channel]) *
                (header_.step * 0.125f);
    }
    std::vector<QuantaCounts> histograms(size);
    for (size_t t = int8_sinks_; t < block_.tokens; ++t) {
      const int shift = ShiftOf(t);
      const float scale = static_cast<float>(1 << shift);
      const size_t position = (h * block_.tokens + t) * channels_ + first;
      const float* const values = &values_[position];
      int32_t* const quanta = &content_.quanta[position];
      float exact[kTile];
      for (size_t c = 0; c < size; ++c) {
        exact[c] = (values[c] - mean[c]) / header_.step * scale;
        const float bounded =
            std::clamp<float>(exact[c], -kMaxQuantum, kMaxQuantum);
        quanta[c] =
            static_cast<int32_t>(bounded + std::copysign(0.5f, bounded));
      }
      if (choices_.rate_aware && shift == 0) {
        for (size_t c = 0; c < size; ++c) {
          quanta[c] = Cheaper(exact[c], quanta[c], SplitClass(klass[c]));
        }
      }
      for (size_t c = 0; c < size; ++c) histograms[c].Add(quanta[c], shift);
    }
    for (size_t c = 0; c < size; ++c) {
      content_.side.classes[h * channels_ + first + c] =
          static_cast<uint8_t>(BestClass(histograms[c], klass[c]));
    }
  }

  // `nearest`, or its neighbour towards zero where that is worth its error.
  int32_t Cheaper(float exact, int32_t nearest, const SplitClass& split) const {
    if (nearest == 0) return 0;
    const int32_t other = nearest > 0 ? nearest - 1 : nearest + 1;
    const auto loss = [&](int32_t quantum) {
      const float error = exact - static_cast<float>(quantum);
      const uint32_t bits =
          tables_.Cost(split.table, quantum >> split.low_bits);
      return error * error + static_cast<float>(bits) * (kErrorPerBit / 256);
    };
    return loss(other) < loss(nearest) ? other : nearest;
  }

  void EncodeSinks(DType dtype) {
    std::vector<float> token(channels_);
    for (size_t h = 0; h < block_.heads; ++h) {
      for (size_t t = 0; t < int8_sinks_; ++t) {
        const size_t row = h * block_.tokens + t;
        LoadElements(dtype, input_.source + row * channels_ * DTypeSize(dtype),
                     absl::MakeSpan(token));
        const uint16_t scale = Int8Scale::For(token);
        content_.sink_scales.push_back(scale);
        for (const float value : token) {
          content_.sink_codes.push_back(Int8Scale::Quantize(value, scale));
        }
      }
    }
  }

  void PutSideData(SymbolWriter* writer, BlockHeader* sizes) const {
    const SideData& side = content_.side;
    const auto middle_of = [](const std::vector<int32_t>& values) {
      int64_t sum = 0;
      for (const int32_t value : values) sum += value;
      const int64_t count = static_cast<int64_t>(values.size());
      return static_cast<int32_t>((sum + count / 2) / count);
    };
    const auto put = [&](std::vector<int32_t> values, int32_t middle,
                         int shift) {
      const TableFit fit = FitTable(values, middle, shift);
      for (int32_t& value : values) value = (value - middle) >> shift;
      writer->PutRows(values, fit.table, lanes_);
      return static_cast<uint8_t>(fit.table);
    };

    const std::vector<int32_t> classes(side.classes.begin(),
                                       side.classes.end());
    sizes->class_middle = static_cast<uint8_t>(middle_of(classes));
    sizes->class_table = put(classes, sizes->class_middle, 0);

    int shift = 0;
    for (uint64_t cost = FitTable(side.means, 0, 0).cost; shift < kMaxMeanShift;
         ++shift) {
      const uint64_t next = FitTable(side.means, 0, shift + 1).cost;
      if (next >= cost) break;
      cost = next;
    }
    sizes->mean_shift = static_cast<uint8_t>(shift);
    sizes->mean_table = put(side.means, 0, shift);
    for (const int32_t mean : side.means) writer->PutLowBits(mean, shift);

    if (!header_.norms) return;
    const std::vector<int32_t> norms(side.norms.begin(), side.norms.end());
    sizes->norm_middle = static_cast<uint16_t>(middle_of(norms));
    sizes->norm_table = put(norms, sizes->norm_middle, 0);
  }

  void PutQuanta(SymbolWriter* writer) const {
    for (size_t group = 0; group < all_channels_; group += kMaxLanes) {
      const size_t size = std::min(kMaxLanes, all_channels_ - group);
      for (size_t t = int8_sinks_; t < block_.tokens; ++t) {
        const int shift = ShiftOf(t);
        for (size_t lane = 0; lane < size; ++lane) {
          const size_t channel = group + lane;
          const SplitClass split(content_.side.classes[channel] + 4 * shift);
          writer->Put(lane, split.table,
                      content_.quanta[PositionOf(channel) + t * channels_],
                      split.low_bits);
        }
      }
    }
  }

  bool Write(DType dtype, std::string* payload, uint8_t* decoded) {
    BlockHeader sizes;
    SymbolWriter writer(values_.size() + 2 * all_channels_ +
                        content_.side.norms.size());
    PutSideData(&writer, &sizes);
    PutQuanta(&writer);
    writer.Finish();
    const RansStream stream = RansEncode(writer.symbols(), lanes_);

    std::vector<float> values(values_.size());
    Reconstruct(header_, geometry_, block_, content_, absl::MakeSpan(values));
    StoreElements(dtype, values, decoded);
    LoadElements(dtype, decoded, absl::MakeSpan(values));
    const std::string patches =
        Patch(dtype, input_.source, choices_.patch_error, values, decoded);

    const size_t sinks_size =
        2 * content_.sink_scales.size() + content_.sink_codes.size();
    const uint64_t size = kBlockHeaderSize + 4 * stream.states.size() +
                          2 * stream.words.size() + writer.escapes().size() +
                          sinks_size + patches.size() +
                          writer.low_bits().size();
    if (size > MaxBlockSize(values.size())) return false;
    sizes.size = static_cast<uint32_t>(size);
    sizes.words = static_cast<uint32_t>(stream.words.size());
    sizes.escapes = static_cast<uint32_t>(writer.escapes().size());
    sizes.patches = static_cast<uint32_t>(patches.size());
    WriteBlockHeader(sizes, payload);
    PutBytes(stream.states.data(), 4 * stream.states.size(), payload);
    PutBytes(stream.words.data(), 2 * stream.words.size(), payload);
    payload->append(writer.escapes());
    PutBytes(content_.sink_scales.data(), 2 * content_.sink_scales.size(),
             payload);
    PutBytes(content_.sink_codes.data(), content_.sink_codes.size(), payload);
    payload->append(patches);
    payload->append(writer.low_bits());
    return true;
  }

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  const BlockChoices& choices_;
  const BlockInput& input_;
  const Tables& tables_ = GetTables();
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t lanes_;
  const size_t int8_sinks_;
  std::vector<float> values_;  // without rotation, divided by norms
  std::vector<double> means_;
  std::vector<double> variances_;
  Spread spread_;
  BlockContent content_;
};

}  // namespace

uint16_t NormCode(absl::Span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  const float norm = static_cast<float>(
      std::sqrt(squares / static_cast<double>(values.size())));
  const uint32_t bits = std::bit_cast<uint32_t>(norm);
  const uint32_t code = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
  return static_cast<uint16_t>(std::min<uint32_t>(code, kNormEnd - 1));
}

Spread Measure(const TensorHeader& header, const Geometry& geometry,
               const Block& block, const BlockChoices& choices,
               const BlockInput& input) {
  return Encoder(header, geometry, block, choices, input).spread();
}

bool EncodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockChoices& choices, DType dtype,
                 const BlockInput& input, std::string* payload,
                 uint8_t* decoded) {
  return Encoder(header, geometry, block, choices, input)
      .Encode(dtype, payload, decoded);
}

}  // namespace kvcompress::ecsq
