// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "absl/types/span.h"
#include "entropy/rans.h"
#include "entropy/symbol_writer.h"
#include "kernels/elements.h"
#include "profile/residual_grid.h"
#include "profile/residuals.h"

namespace kvcompress::profile {
namespace {

using coding::kMaxLanes;

constexpr int kMostLevels = std::numeric_limits<uint8_t>::max();
// The standard deviation over the median magnitude, of a normal distribution.
constexpr float kSpread = 1.4826f;
// Tokens that the errors of a channel are taken from, at most.
constexpr uint64_t kSampled = 4096;

template <typename T>
void Put(T value, std::string* out) {
  AppendNumbers(absl::MakeConstSpan(&value, 1), out);
}

// Sends what the index of an element does not say of it.
void PutRest(const ElementFormat& format, int floor, int32_t index,
             uint16_t bits, coding::SymbolWriter* writer) {
  const int magnitude = bits & kMagnitude;
  if (index == 0) {
    writer->PutLowBits(magnitude, 15);
    writer->PutLowBits(bits > kMagnitude, 1);
    return;
  }
  const int exponent = magnitude >> format.mantissa;
  if (exponent >= floor) return;
  writer->PutLowBits(SignificandOf(format, magnitude),
                     ShiftAt(exponent, floor));
}

class Encoder {
 public:
  Encoder(const ResidualShape& shape, absl::string_view source,
          absl::string_view restored)
      : shape_(shape),
        format_(FormatOf(shape.dtype)),
        source_(ElementsOf(source)),
        restored_(ElementsOf(restored)) {}

  std::string Encode(Checkpoint* checkpoint) {
    std::string out;
    FindLevels(checkpoint);
    const int base =
        levels_.empty() ? 0 : *std::min_element(levels_.begin(), levels_.end());
    const int most =
        levels_.empty() ? 0 : *std::max_element(levels_.begin(), levels_.end());
    const int first = std::max(base, most - kMostLevels);
    Put(static_cast<uint16_t>(first), &out);
    for (int& level : levels_) {
      level = std::max(level, first);
      Put(static_cast<uint8_t>(level - first), &out);
    }
    for (uint64_t head = 0; head < shape_.batches * shape_.heads; ++head) {
      for (uint64_t token = 0; token < shape_.tokens;
           token += shape_.block_tokens()) {
        if (Stops(checkpoint)) return out;
        const uint64_t count =
            std::min(shape_.block_tokens(), shape_.tokens - token);
        AppendBlock(head, token, count, &out);
      }
    }
    return out;
  }

 private:
  // Of each channel, by the median magnitude of its errors, which few large
  // ones do not change; by their mean where most are 0.
  void FindLevels(Checkpoint* checkpoint) {
    const size_t channels = shape_.channels;
    const uint64_t of_head = shape_.batches * shape_.tokens;
    const uint64_t every = (of_head + kSampled - 1) / kSampled;
    const size_t count = (of_head + every - 1) / every;
    levels_.resize(shape_.heads * channels);
    std::vector<float> x(channels);
    std::vector<float> y(channels);
    std::vector<float> errors(channels * count);  // [channels, count]
    for (uint64_t head = 0; head < shape_.heads; ++head) {
      if (Stops(checkpoint)) return;
      for (size_t n = 0; n < count; ++n) {
        const uint64_t batch = n * every / shape_.tokens;
        const uint64_t token = (batch * shape_.heads + head) * shape_.tokens +
                               n * every % shape_.tokens;
        const uint64_t at = token * channels * kElementSize;
        LoadElements(shape_.dtype, source_ + at, absl::MakeSpan(x));
        LoadElements(shape_.dtype, restored_ + at, absl::MakeSpan(y));
        for (size_t i = 0; i < channels; ++i) {
          const float error = std::abs(x[i] - y[i]);
          errors[i * count + n] = std::isfinite(error) ? error : 0;
        }
      }
      for (size_t i = 0; i < channels; ++i) {
        float* const begin = &errors[i * count];
        double sum = 0;
        for (size_t n = 0; n < count; ++n) sum += begin[n];
        std::nth_element(begin, begin + count / 2, begin + count);
        const float median = begin[count / 2];
        levels_[head * channels + i] = LevelOf(
            median > 0 ? kSpread * median : sum / static_cast<double>(count));
      }
    }
  }

  // To the nearest quarter of an octave; without logarithms, of which machines
  // have different ones.
  static int LevelOf(double deviation) {
    if (!(deviation > 0)) return 0;
    // 2^(-7/8), 2^(-5/8), 2^(-3/8), 2^(-1/8)
    constexpr double kBetween[] = {0.5452538663326288, 0.6484197773255048,
                                   0.7711054127039704, 0.9170040432046712};
    int exponent;
    const double part = std::frexp(deviation, &exponent);
    const auto* above =
        std::upper_bound(std::begin(kBetween), std::end(kBetween), part);
    const auto quarters = static_cast<int>(above - std::begin(kBetween));
    return std::max(0, kLevelOfOne + 4 * (exponent - 1) + quarters);
  }

  void AppendBlock(uint64_t head, uint64_t token, uint64_t count,
                   std::string* out) {
    const size_t channels = shape_.channels;
    const size_t elements = count * channels;
    const uint64_t at =
        (head * shape_.tokens + token) * channels * kElementSize;
    const uint8_t* const source = source_ + at;
    const uint8_t* const restored = restored_ + at;
    std::vector<ElementGrid> grids(channels);
    for (size_t i = 0; i < channels; ++i) {
      grids[i] = GridOf(format_, levels_[head % shape_.heads * channels + i]);
    }
    coding::SymbolWriter writer(&symbols_);
    const size_t rows = (elements + kMaxLanes - 1) / kMaxLanes;
    uint16_t* const symbols = writer.AddRows(rows, kMaxLanes).data();
    std::fill(symbols + elements, symbols + rows * kMaxLanes,
              coding::kNoSymbol);
    for (size_t i = 0; i < elements; ++i) {
      const ElementGrid& grid = grids[i % channels];
      const uint16_t predicted = ElementAt(restored, i);
      const uint16_t bits = ElementAt(source, i);
      const int32_t index = IndexOf(format_, grid.floor, bits);
      symbols[i] = writer.Code(TableOf(format_, grid, predicted),
                               index - IndexOf(format_, grid.floor, predicted),
                               /*low_bits=*/0);
      PutRest(format_, grid.floor, index, bits, &writer);
    }
    writer.Finish();
    const coding::RansStream stream =
        coding::RansEncode(writer.rows(), kMaxLanes, &words_);
    const size_t size = kResidualHeaderSize + kStatesSize +
                        2 * stream.words.size() + writer.escapes().size() +
                        writer.low_bits().size();
    const size_t raw = kResidualHeaderSize + elements * kElementSize;
    if (size >= raw) {
      Put(static_cast<uint32_t>(raw), out);
      Put(kRawBlock, out);
      Put(uint32_t{0}, out);
      out->append(reinterpret_cast<const char*>(source),
                  elements * kElementSize);
      return;
    }
    Put(static_cast<uint32_t>(size), out);
    Put(static_cast<uint32_t>(stream.words.size()), out);
    Put(static_cast<uint32_t>(writer.escapes().size()), out);
    AppendNumbers(absl::MakeConstSpan(stream.states), out);
    AppendNumbers(stream.words, out);
    out->append(writer.escapes());
    out->append(writer.low_bits());
  }

  const ResidualShape& shape_;
  const ElementFormat format_;
  const uint8_t* const source_;
  const uint8_t* const restored_;
  std::vector<int> levels_;
  std::vector<uint16_t> symbols_;
  std::vector<uint16_t> words_;
};

}  // namespace

std::string FiniteElements(DType dtype, absl::string_view source) {
  std::string finite(source);
  const int last = FormatOf(dtype).largest_floor;
  for (size_t i = 0; i < finite.size() / kElementSize; ++i) {
    const int exponent = (ElementAt(ElementsOf(finite), i) & kMagnitude) >>
                         FormatOf(dtype).mantissa;
    if (exponent > last)
      std::memset(&finite[i * kElementSize], 0, kElementSize);
  }
  return finite;
}

std::string EncodeResiduals(const ResidualShape& shape,
                            absl::string_view source,
                            absl::string_view restored,
                            Checkpoint* checkpoint) {
  return Encoder(shape, source, restored).Encode(checkpoint);
}

}  // namespace kvcompress::profile
