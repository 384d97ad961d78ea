// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/block_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "coding/identity/reconstruct.h"
#include "coding/identity/strip_encoder.h"
#include "entropy/escapes.h"
#include "entropy/symbol_writer.h"
#include "entropy/tables.h"
#include "kernels/elements.h"
#include "quantization/decision_thresholds.h"
#include "tensor/grow.h"

namespace kvcompress::coding {
namespace {

// The code of 2^-126, the least with an inverse.
constexpr uint32_t kMinNorm = 8;

void PutBytes(const void* bytes, size_t size, std::string* out) {
  out->append(static_cast<const char*>(bytes), size);
}

class Encoder {
 public:
  Encoder(const TensorHeader& header, const Geometry& geometry,
          const Block& block, const BlockChoices& choices,
          const BlockInput& input, const ChannelStatistics& statistics,
          EncoderBuffers* buffers)
      : header_(header),
        geometry_(geometry),
        block_(block),
        choices_(choices),
        input_(input),
        statistics_(statistics),
        buffers_(*buffers),
        elements_(geometry.Elements(block)),
        channels_(geometry.channels()),
        all_channels_(block.heads * channels_),
        lanes_(geometry.Lanes(block)),
        int8_sinks_(header.Int8Sinks(block)),
        runs_(RunsOf(header, geometry, block, int8_sinks_)) {}

  bool Encode(DType dtype, Rotator* rotator, std::string* payload,
              uint8_t* decoded, DistortionSums* sums) {
    content_.side.norms.assign(input_.norms.begin(), input_.norms.end());
    SetMeans();
    SetClasses();
    EncodeSinks(dtype);
    BlockHeader sizes;
    SymbolWriter writer(&buffers_.symbols);
    PutSideData(&writer, &sizes);
    StripEncoder strips(geometry_, block_, runs_, content_.side.classes,
                        &writer, &buffers_.quanta);
    *sums = Quantize(dtype, rotator, &strips, decoded);
    strips.Finish();
    std::string exceptions;
    if (choices_.max_error != 0 && sums->max_abs_e > choices_.max_error) {
      exceptions =
          Patch(dtype, input_.source, choices_.max_error, elements_, decoded);
      *sums = CompareElements(dtype, input_.source, decoded, elements_);
    }
    return Write(exceptions, &writer, sizes, payload);
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

  // Codes what it quantizes; also writes what that decodes to, unless that is
  // null, and gives what it lost, all while a tile is in the cache.
  DistortionSums Quantize(DType dtype, Rotator* rotator, StripEncoder* strips,
                          uint8_t* decoded) {
    Grow(kMaxTileElements, &buffers_.values);
    std::vector<float> means(all_channels_);
    std::vector<int32_t> border(all_channels_);
    for (size_t channel = 0; channel < all_channels_; ++channel) {
      means[channel] = static_cast<float>(content_.side.means[channel]) *
                       (header_.step * 0.125f);
      border[channel] =
          DecisionThresholds::Begin(content_.side.classes[channel]);
    }
    const Reconstructor reconstructor(header_, geometry_, block_, content_,
                                      rotator);
    const auto compare =
        kernels::Active().rows.compare[static_cast<int>(dtype)];
    kernels::LaneSums lanes;
    float* const values = buffers_.values.data();
    int32_t quanta[kMaxTileElements];
    geometry_.ForEachTile(block_, [&](size_t h, size_t begin, size_t end) {
      const size_t first = (h * block_.tokens + begin) * channels_;
      const size_t count = (end - begin) * channels_;
      input_.load(h, begin, end, values);
      for (size_t r = 0; r < runs_.size(); ++r) {
        const size_t t = std::max(begin, runs_[r].begin);
        const size_t run_end = std::min(end, runs_[r].end);
        if (t >= run_end) continue;
        const bool gives_way = choices_.rate_aware && runs_[r].shift == 0;
        const size_t at = (t - begin) * channels_;
        kernels::Active().rows.quantize(
            values + at, run_end - t, channels_,
            {.inverse = static_cast<float>(1 << runs_[r].shift) / header_.step,
             .means = &means[h * channels_],
             .borders =
                 gives_way ? GetDecisionThresholds().values.data() : nullptr,
             .border = &border[h * channels_]},
            quanta + at);
        strips->Code(h, r, t, run_end, quanta + at);
      }
      if (decoded == nullptr) return;
      reconstructor.Restore(
          h, begin, end,
          [&](size_t t, size_t run_end, const kernels::DequantizeStep& step,
              float* rows) {
            kernels::Active().rows.dequantize(quanta + (t - begin) * channels_,
                                              {.rows = run_end - t,
                                               .columns = channels_,
                                               .stride = channels_},
                                              step, rows);
          },
          values);
      StoreElements(dtype, absl::MakeConstSpan(values, count),
                    decoded + first * DTypeSize(dtype));
      compare(input_.source, decoded, first, first + count, &lanes);
    });
    return lanes.Total(elements_);
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

  bool Write(absl::string_view exceptions, SymbolWriter* writer,
             BlockHeader sizes, std::string* payload) {
    writer->Finish();
    const RansStream stream =
        RansEncode(writer->rows(), lanes_, &buffers_.words);

    const size_t sinks_size =
        2 * content_.sink_scales.size() + content_.sink_codes.size();
    const uint64_t size = kBlockHeaderSize + 4 * stream.states.size() +
                          2 * stream.words.size() + writer->escapes().size() +
                          sinks_size + exceptions.size() +
                          writer->low_bits().size();
    if (size > MaxBlockSize(elements_)) return false;
    sizes.size = static_cast<uint32_t>(size);
    sizes.words = static_cast<uint32_t>(stream.words.size());
    sizes.escapes = static_cast<uint32_t>(writer->escapes().size());
    sizes.exceptions = static_cast<uint32_t>(exceptions.size());
    WriteBlockHeader(sizes, payload);
    PutBytes(stream.states.data(), 4 * stream.states.size(), payload);
    PutBytes(stream.words.data(), 2 * stream.words.size(), payload);
    payload->append(writer->escapes());
    PutBytes(content_.sink_scales.data(), 2 * content_.sink_scales.size(),
             payload);
    PutBytes(content_.sink_codes.data(), content_.sink_codes.size(), payload);
    PutBytes(exceptions.data(), exceptions.size(), payload);
    payload->append(writer->low_bits());
    return true;
  }

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  const BlockChoices& choices_;
  const BlockInput& input_;
  const ChannelStatistics& statistics_;
  EncoderBuffers& buffers_;
  const size_t elements_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t lanes_;
  const size_t int8_sinks_;
  const std::vector<Run> runs_;  // without the sinks that are integers
  BlockContent content_;
};

}  // namespace

uint16_t NormCode(absl::Span<const float> values) {
  return NormCode(
      kernels::Active().rows.sum_squares(values.data(), values.size()),
      values.size());
}

uint16_t NormCode(double squares, size_t count) {
  const float norm =
      static_cast<float>(std::sqrt(squares / static_cast<double>(count)));
  const uint32_t bits = std::bit_cast<uint32_t>(norm);
  const uint32_t code = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
  if (code < kMinNorm) return 0;
  return static_cast<uint16_t>(std::min<uint32_t>(code, kNormEnd - 1));
}

ChannelStatistics Measure(const TensorHeader& header, const Geometry& geometry,
                          const Block& block, LoadRows load,
                          EncoderBuffers* buffers) {
  const size_t channels = geometry.channels();
  const size_t all_channels = block.heads * channels;
  ChannelStatistics statistics;
  std::vector<double> means(all_channels);
  std::vector<double> squares(all_channels);
  const size_t sinks = std::min<uint64_t>(
      block.tokens,
      header.sinks > block.first_token ? header.sinks - block.first_token : 0);
  const size_t tokens = block.tokens - sinks;
  Grow(kMaxTileElements, &buffers->values);
  float* const tile = buffers->values.data();
  geometry.ForEachTile(block, [&](size_t h, size_t begin, size_t end) {
    load(h, begin, end, tile);
    const size_t first = std::max(begin, std::min(end, sinks));
    const float largest = kernels::Active().rows.sum_columns(
        tile + (first - begin) * channels,
        {.rows = end - first, .columns = channels, .stride = channels},
        &means[h * channels], &squares[h * channels]);
    statistics.largest = std::max<double>(statistics.largest, largest);
  });
  if (tokens > 0) {
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
                 Rotator* rotator, EncoderBuffers* buffers,
                 std::string* payload, uint8_t* decoded, DistortionSums* sums) {
  return Encoder(header, geometry, block, choices, input, statistics, buffers)
      .Encode(dtype, rotator, payload, decoded, sums);
}

}  // namespace kvcompress::coding
