// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/block_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "codecs/ecsq/borders.h"
#include "codecs/ecsq/lists.h"
#include "codecs/ecsq/reconstruct.h"
#include "codecs/ecsq/strip.h"
#include "codecs/ecsq/symbol_writer.h"
#include "codecs/ecsq/tables.h"
#include "kernels/elements.h"

namespace kvcompress::ecsq {
namespace {

// The code of 2^-126, the least with an inverse.
constexpr uint32_t kLeastNorm = 8;

void PutBytes(const void* bytes, size_t size, std::string* out) {
  out->append(static_cast<const char*>(bytes), size);
}

class Encoder {
 public:
  Encoder(const TensorHeader& header, const Geometry& geometry,
          const Block& block, const BlockChoices& choices,
          const BlockInput& input, const ChannelStatistics& statistics)
      : header_(header),
        geometry_(geometry),
        block_(block),
        choices_(choices),
        input_(input),
        statistics_(statistics),
        channels_(geometry.channels()),
        all_channels_(block.heads * channels_),
        lanes_(geometry.Lanes(block)),
        int8_sinks_(header.Int8Sinks(block)) {}

  bool Encode(DType dtype, Rotator* rotator, std::string* payload,
              uint8_t* decoded, DistortionSums* sums) {
    content_.side.norms.assign(input_.norms.begin(), input_.norms.end());
    SetMeans();
    SetClasses();
    Quantize();
    EncodeSinks(dtype);
    return Write(dtype, rotator, payload, decoded, sums);
  }

 private:
  void SetMeans() {
    content_.side.means.resize(all_channels_);
    const double unit = static_cast<double>(header_.step) / 8;
    for (size_t channel = 0; channel < all_channels_; ++channel) {
      content_.side.means[channel] = static_cast<int32_t>(std::clamp<double>(
          std::round(statistics_.means[channel] / unit), -kMaxMean, kMaxMean));
    }
  }

  void SetClasses() {
    const double step = header_.step;
    for (const double variance : statistics_.variances) {
      content_.side.classes.push_back(
          static_cast<uint8_t>(ClassOf(variance / step / step)));
    }
  }

  void Quantize() {
    content_.quanta =
        std::make_unique_for_overwrite<int32_t[]>(input_.values.size());
    std::vector<float> means(all_channels_);
    std::vector<int32_t> border(all_channels_);
    for (size_t channel = 0; channel < all_channels_; ++channel) {
      means[channel] = static_cast<float>(content_.side.means[channel]) *
                       (header_.step * 0.125f);
      border[channel] = Borders::Begin(content_.side.classes[channel]);
    }
    for (size_t h = 0; h < block_.heads; ++h) {
      const auto quantize = [&](size_t t, size_t end, int shift) {
        const bool gives_way = choices_.rate_aware && shift == 0;
        const size_t first = (h * block_.tokens + t) * channels_;
        kernels::Active().rows.quantize(
            &input_.values[first], end - t, channels_,
            {.inverse = static_cast<float>(1 << shift) / header_.step,
             .means = &means[h * channels_],
             .borders = gives_way ? GetBorders().values.data() : nullptr,
             .border = &border[h * channels_]},
            &content_.quanta[first]);
        return true;
      };
      ForEachRun(header_, geometry_, block_, int8_sinks_, quantize);
    }
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
      ForEachRun(header_, geometry_, block_, int8_sinks_,
                 [&](size_t begin, size_t end, int shift) {
                   PutStrip(Strip(geometry_, block_, content_.side.classes,
                                  group, shift),
                            begin, end, writer);
                   return true;
                 });
    }
  }

  void PutStrip(const Strip& strip, size_t begin, size_t end,
                SymbolWriter* writer) const {
    uint16_t* row = writer->AddRows(end - begin).data();
    for (size_t t = begin; t < end; ++t, row += kMaxLanes) {
      const int32_t* quanta = &content_.quanta[t * channels_];
      if (strip.is_run && !strip.coding.has_low_bits) {
        const size_t done = kernels::Active().rows.code(
            quanta + strip.position[0],
            {.rows = end - t, .columns = strip.size, .stride = channels_},
            strip.coding.base, strip.coding.most, row);
        t += done;
        if (t == end) break;
        quanta += done * channels_;
        row += done * kMaxLanes;
      }
      for (size_t lane = 0; lane < strip.size; ++lane) {
        row[lane] = writer->Code(strip.coding.tables[lane],
                                 quanta[strip.position[lane]],
                                 strip.coding.low_counts[lane]);
      }
    }
  }

  // Also patches. Gives the list of patches.
  std::string Restore(DType dtype, Rotator* rotator, uint8_t* decoded,
                      DistortionSums* sums) const {
    const size_t size = input_.values.size();
    const auto values = std::make_unique_for_overwrite<float[]>(size);
    Reconstruct(header_, geometry_, block_, content_, rotator, values.get());
    StoreElements(dtype, absl::MakeConstSpan(values.get(), size), decoded);
    *sums = CompareElements(dtype, input_.source, decoded, size);
    if (choices_.patch_error == 0 || sums->max_abs_e <= choices_.patch_error) {
      return "";
    }
    std::string patches =
        Patch(dtype, input_.source, choices_.patch_error, size, decoded);
    *sums = CompareElements(dtype, input_.source, decoded, size);
    return patches;
  }

  bool Write(DType dtype, Rotator* rotator, std::string* payload,
             uint8_t* decoded, DistortionSums* sums) {
    BlockHeader sizes;
    SymbolWriter writer((input_.values.size() + 2 * all_channels_ +
                         content_.side.norms.size()) /
                            lanes_ +
                        3);
    PutSideData(&writer, &sizes);
    PutQuanta(&writer);
    writer.Finish();
    const RansStream stream = RansEncode(writer.rows(), lanes_);
    const std::string patches = Restore(dtype, rotator, decoded, sums);

    const size_t sinks_size =
        2 * content_.sink_scales.size() + content_.sink_codes.size();
    const uint64_t size = kBlockHeaderSize + 4 * stream.states.size() +
                          2 * stream.words.size() + writer.escapes().size() +
                          sinks_size + patches.size() +
                          writer.low_bits().size();
    if (size > MaxBlockSize(input_.values.size())) return false;
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
  const ChannelStatistics& statistics_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t lanes_;
  const size_t int8_sinks_;
  BlockContent content_;
};

}  // namespace

uint16_t NormCode(absl::Span<const float> values) {
  const double squares =
      kernels::Active().rows.sum_squares(values.data(), values.size());
  const float norm = static_cast<float>(
      std::sqrt(squares / static_cast<double>(values.size())));
  const uint32_t bits = std::bit_cast<uint32_t>(norm);
  const uint32_t code = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
  if (code < kLeastNorm) return 0;
  return static_cast<uint16_t>(std::min<uint32_t>(code, kNormEnd - 1));
}

ChannelStatistics Measure(const TensorHeader& header, const Geometry& geometry,
                          const Block& block, absl::Span<const float> values) {
  const size_t channels = geometry.channels();
  const size_t all_channels = block.heads * channels;
  ChannelStatistics statistics;
  std::vector<double> means(all_channels);
  std::vector<double> squares(all_channels);
  const uint64_t sinks = std::min<uint64_t>(
      block.tokens,
      header.sinks > block.first_token ? header.sinks - block.first_token : 0);
  const size_t tokens = block.tokens - sinks;
  if (tokens > 0) {
    for (size_t h = 0; h < block.heads; ++h) {
      const float largest = kernels::Active().rows.sum_columns(
          &values[(h * block.tokens + sinks) * channels],
          {.rows = tokens, .columns = channels, .stride = channels},
          &means[h * channels], &squares[h * channels]);
      statistics.largest = std::max<double>(statistics.largest, largest);
    }
    const double count = static_cast<double>(tokens);
    for (size_t channel = 0; channel < all_channels; ++channel) {
      means[channel] /= count;
      // Below 0 only by rounding.
      double& variance = squares[channel];
      variance =
          std::max(0.0, variance / count - means[channel] * means[channel]);
      statistics.square_sum += variance * count;
    }
    statistics.count = tokens * all_channels;
  }
  statistics.means = std::move(means);
  statistics.variances = std::move(squares);
  return statistics;
}

bool EncodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, const BlockChoices& choices, DType dtype,
                 const BlockInput& input, const ChannelStatistics& statistics,
                 Rotator* rotator, std::string* payload, uint8_t* decoded,
                 DistortionSums* sums) {
  return Encoder(header, geometry, block, choices, input, statistics)
      .Encode(dtype, rotator, payload, decoded, sums);
}

}  // namespace kvcompress::ecsq
