// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/block_encoder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "coding/block_writer.h"
#include "coding/identity/reconstruct.h"
#include "coding/identity/strip_encoder.h"
#include "entropy/tables.h"
#include "kernels/elements.h"
#include "kernels/kernels.h"
#include "kernels/lane_sums.h"
#include "quantization/decision_thresholds.h"
#include "quantization/exceptions.h"
#include "quantization/steps.h"
#include "tensor/grow.h"

namespace kvcompress::coding {
namespace {

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
        all_channels_(geometry.Channels(block)),
        runs_(RunsOf(header, geometry, block)) {}

  bool Encode(DType dtype, Rotator* rotator, std::string* payload,
              uint8_t* decoded, DistortionSums* sums) {
    content_.norms.assign(input_.norms.begin(), input_.norms.end());
    content_.means = QuantizeMeans(statistics_.means, header_.step);
    SetClasses();
    content_.EncodeSinks(dtype, input_.source, block_.heads,
                         block_.tokens * channels_, header_.Int8Sinks(block_),
                         channels_);
    BlockWriter writer(header_, geometry_, block_, &buffers_.symbols);
    writer.PutSideData(content_);
    StripEncoder strips(geometry_, block_, runs_, content_.classes,
                        &writer.symbols(), &buffers_.quanta);
    *sums = Quantize(dtype, rotator, &strips, decoded);
    strips.Finish();
    ExceptionWriter exceptions(dtype);
    if (choices_.max_error != 0 && sums->max_abs_e > choices_.max_error) {
      exceptions.AddHead(input_.source, elements_, choices_.max_error, decoded);
      *sums = CompareElements(dtype, input_.source, decoded, elements_);
    }
    return writer.Finish({}, content_, exceptions.bytes(), &buffers_.words,
                         payload);
  }

 private:
  void SetClasses() {
    const double step = header_.step;
    for (const double variance : statistics_.variances) {
      content_.classes.push_back(
          static_cast<uint8_t>(ClassOf(variance / step / step)));
    }
  }

  // Codes what it quantizes; also writes what that decodes to, unless that is
  // null, and returns the distortion, all while a tile is in the cache.
  DistortionSums Quantize(DType dtype, Rotator* rotator, StripEncoder* strips,
                          uint8_t* decoded) {
    Grow(kMaxTileElements, &buffers_.values);
    std::vector<float> means(all_channels_);
    std::vector<int32_t> thresholds(all_channels_);
    for (size_t channel = 0; channel < all_channels_; ++channel) {
      means[channel] =
          static_cast<float>(content_.means[channel]) * (header_.step * 0.125f);
      thresholds[channel] =
          DecisionThresholds::Begin(content_.classes[channel]);
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
        const bool rate_aware = choices_.rate_aware && runs_[r].shift == 0;
        const size_t at = (t - begin) * channels_;
        kernels::Active().rows.quantize(
            values + at, run_end - t, channels_,
            {.inverse = static_cast<float>(1 << runs_[r].shift) / header_.step,
             .means = &means[h * channels_],
             .thresholds =
                 rate_aware ? GetDecisionThresholds().values.data() : nullptr,
             .threshold_offsets = &thresholds[h * channels_]},
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

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  const BlockChoices& choices_;
  const BlockInput& input_;
  const ChannelStatistics& statistics_;
  EncoderBuffers& buffers_;
  const size_t elements_;
  const size_t channels_;        // of a head
  const size_t all_channels_;    // of all heads
  const std::vector<Run> runs_;  // without the sinks that are integers
  BlockContent content_;
};

}  // namespace

ChannelStatistics Measure(const TensorHeader& header, const Geometry& geometry,
                          const Block& block, LoadRows load,
                          EncoderBuffers* buffers) {
  const size_t channels = geometry.channels();
  const size_t all_channels = geometry.Channels(block);
  ChannelStatistics statistics;
  std::vector<double> means(all_channels);
  std::vector<double> squares(all_channels);
  const size_t sinks = header.Sinks(block);
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
