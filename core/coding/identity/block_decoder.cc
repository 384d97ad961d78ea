// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/block_decoder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coding/block_content.h"
#include "coding/block_reader.h"
#include "coding/identity/reconstruct.h"
#include "coding/identity/runs.h"
#include "coding/strip.h"
#include "entropy/tables.h"
#include "kernels/elements.h"
#include "kernels/kernels.h"
#include "quantization/exceptions.h"
#include "quantization/int8.h"
#include "quantization/rope.h"
#include "quantization/steps.h"
#include "status/macros.h"
#include "tensor/grow.h"

namespace kvcompress::coding {
namespace {

size_t StripsOf(size_t channels) {
  return (channels + kMaxLanes - 1) / kMaxLanes;
}

// What the blocks of a tensor are decoded in, one after the other; what is in
// it means nothing.
struct DecoderBuffers {
  std::vector<int8_t> symbols;
  std::vector<int32_t> quanta;  // where there are low bits
};

// Of one block.
class Decoder {
 public:
  Decoder(const TensorHeader& header, const Geometry& geometry,
          const Block& block, DecoderBuffers* buffers)
      : header_(header),
        geometry_(geometry),
        block_(block),
        buffers_(*buffers),
        channels_(geometry.channels()),
        all_channels_(geometry.Channels(block)),
        sinks_(header.Int8Sinks(block)),
        coded_tokens_(block.tokens - sinks_),
        runs_(RunsOf(header, geometry, block)),
        reader_(header, geometry, block) {}

  // Writes the elements, which are consecutive, to `out`.
  absl::Status Decode(DType dtype, absl::Span<const uint8_t> bytes,
                      Rotator* rotator, uint8_t* out) {
    KVC_RETURN_IF_ERROR(reader_.Open(bytes, 0));
    KVC_RETURN_IF_ERROR(reader_.ReadSideData(&content_));
    KVC_RETURN_IF_ERROR(ReadQuanta());
    KVC_RETURN_IF_ERROR(reader_.Finish(&content_));
    const Reconstructor reconstructor(header_, geometry_, block_, content_,
                                      rotator);
    uint8_t* next = out;
    float values[kMaxTileElements];
    geometry_.ForEachTile(block_, [&](size_t h, size_t begin, size_t end) {
      const size_t count = (end - begin) * channels_;
      reconstructor.Restore(
          h, begin, end,
          [&](size_t t, size_t run_end, const kernels::DequantizeStep& step,
              float* rows) { Dequantize(h, t, run_end, step, rows); },
          values);
      StoreElements(dtype, absl::MakeConstSpan(values, count), next);
      next += count * DTypeSize(dtype);
    });
    const size_t elements = geometry_.Elements(block_);
    return ApplyExceptions(reader_.exceptions(), dtype, 1, elements, elements,
                           out);
  }

 private:
  // Symbols stay as they are, row by row; next to them are the escapes. Strips
  // with low bits become quanta.
  absl::Status ReadQuanta() {
    const GroupLayout layout = {.channels = all_channels_,
                                .group_channels = channels_,
                                .tokens = block_.tokens};
    const size_t strips = StripsOf(all_channels_);
    // As many as of a block without sinks, so that they need not grow.
    Grow(strips * block_.tokens * kMaxLanes, &buffers_.symbols);
    for (size_t index = 0; index < strips; ++index) {
      StripContent& content = strips_.emplace_back();
      Strip strip(layout, content_.classes, index * kMaxLanes,
                  kMaxShiftedClass);
      for (const Run& run : runs_) {
        const LaneCoding& coding = strip.At(run.offset());
        tables_.assign(run.end - run.begin, coding.tables);
        int8_t* const symbols = SymbolsAt(index, run.begin);
        if (!reader_.rans().ReadRows(
                tables_, absl::MakeSpan(symbols, tables_.size() * kMaxLanes))) {
          return BrokenStrip(index, "the words end within it");
        }
        content.has_quanta[run.shift] = coding.low_lanes != 0;
        const absl::Status read = coding.low_lanes != 0
                                      ? ReadLowBits(strip, coding, run, symbols)
                                      : FindEscapes(run, symbols, &content);
        if (!read.ok()) return BrokenStrip(index, read.message());
      }
    }
    return absl::OkStatus();
  }

  static absl::Status BrokenStrip(size_t index, absl::string_view rule) {
    return absl::DataLossError(absl::StrCat("the strip of channels from ",
                                            index * kMaxLanes, " on: ", rule));
  }

  static absl::Status NoEscape(size_t token) {
    return absl::DataLossError(
        absl::StrCat("the list of escapes has no valid one for token ", token));
  }

  int8_t* SymbolsAt(size_t strip, size_t token) {
    return &buffers_
                .symbols[(strip * coded_tokens_ + token - sinks_) * kMaxLanes];
  }

  absl::Status ReadLowBits(const Strip& strip, const LaneCoding& coding,
                           const Run& run, const int8_t* symbols) {
    Grow(geometry_.Elements(block_), &buffers_.quanta);
    for (size_t t = run.begin; t < run.end; ++t, symbols += kMaxLanes) {
      for (size_t lane = 0; lane < strip.size(); ++lane) {
        int64_t quantum;
        if (!reader_.Resolve(symbols[lane], coding.low_counts[lane],
                             &quantum)) {
          return NoEscape(t);
        }
        if (std::abs(quantum) > kMaxQuantum) {
          return absl::DataLossError(
              absl::StrCat("a quantum of token ", t, " is beyond 2^20"));
        }
        buffers_.quanta[strip.Place(lane, t)] = static_cast<int32_t>(quantum);
      }
    }
    return absl::OkStatus();
  }

  struct Escape {
    size_t token;
    size_t lane;
    int32_t quantum;
  };
  struct StripContent {
    bool has_quanta[kMaxShift + 1] = {};  // by shift; else symbols
    std::vector<Escape> escapes;          // among symbols, in their order
  };

  absl::Status FindEscapes(const Run& run, const int8_t* symbols,
                           StripContent* content) {
    const int8_t* const end = symbols + (run.end - run.begin) * kMaxLanes;
    for (const int8_t* at = symbols;; ++at) {
      at = static_cast<const int8_t*>(
          std::memchr(at, kEscape & 0xff, static_cast<size_t>(end - at)));
      if (at == nullptr) return absl::OkStatus();
      const auto index = static_cast<size_t>(at - symbols);
      Escape escape = {.token = run.begin + index / kMaxLanes,
                       .lane = index % kMaxLanes};
      if (!reader_.escapes().Next(&escape.quantum)) {
        return NoEscape(escape.token);
      }
      content->escapes.push_back(escape);
    }
  }

  // Rows of tokens [begin, end) of a head, a strip's part after the other.
  void Dequantize(size_t head, size_t begin, size_t end,
                  const kernels::DequantizeStep& step, float* rows) {
    for (size_t c = 0; c < channels_;) {
      const size_t channel = head * channels_ + c;
      const size_t index = channel / kMaxLanes;
      const size_t lane = channel % kMaxLanes;
      const kernels::MatrixShape shape = {
          .rows = end - begin,
          .columns = std::min(kMaxLanes - lane, channels_ - c),
          .stride = channels_};
      kernels::DequantizeStep part = step;
      part.means += c;
      if (strips_[index].has_quanta[step.shift]) {
        kernels::Active().rows.dequantize(
            &buffers_.quanta[(head * block_.tokens + begin) * channels_ + c],
            shape, part, rows + c);
      } else {
        kernels::Active().rows.dequantize_symbols(
            SymbolsAt(index, begin) + lane, shape, part, rows + c);
        DequantizeEscapes(strips_[index], lane, begin, shape, part, rows + c);
      }
      c += shape.columns;
    }
  }

  // Those in the lanes from `first` on and the tokens from `begin` on that
  // `shape` has, at `values`.
  static void DequantizeEscapes(const StripContent& strip, size_t first,
                                size_t begin, kernels::MatrixShape shape,
                                const kernels::DequantizeStep& step,
                                float* values) {
    auto escape = std::lower_bound(
        strip.escapes.begin(), strip.escapes.end(), begin,
        [](const Escape& a, size_t token) { return a.token < token; });
    for (; escape != strip.escapes.end(); ++escape) {
      const size_t row = escape->token - begin;
      const size_t column =
          escape->lane - first;  // wraps around in front of it
      if (row >= shape.rows) return;
      if (column >= shape.columns) continue;
      kernels::DequantizeStep part = step;
      part.means += column;
      if (part.norms != nullptr) part.norms += row;
      kernels::Active().rows.dequantize(&escape->quantum,
                                        {.rows = 1, .columns = 1}, part,
                                        values + row * shape.stride + column);
    }
  }

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  DecoderBuffers& buffers_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t sinks_;
  const size_t coded_tokens_;  // that are no integers
  const std::vector<Run> runs_;
  BlockReader reader_;
  BlockContent content_;
  std::vector<StripContent> strips_;
  std::vector<const uint8_t*> tables_;  // of the rows of a run
};

// The most bytes that DecoderBuffers take for blocks no larger than `block`.
uint64_t BuffersSize(const Geometry& geometry, const Block& block) {
  const size_t strips = StripsOf(geometry.Channels(block));
  return strips * block.tokens * kMaxLanes * sizeof(int8_t) +
         geometry.Elements(block) * sizeof(int32_t);
}

class IdentityDecoder : public BlockDecoder {
 public:
  explicit IdentityDecoder(const TensorSpec& spec)
      : BlockDecoder(spec, Cut::kConsecutive) {}

  absl::Status Decode(const TensorHeader& header, const Block& block,
                      absl::Span<const uint8_t> bytes, IsNeeded is_needed,
                      std::string* output) override {
    const uint64_t first = geometry().RowBegin(block, 0);
    const uint64_t elements = geometry().Elements(block);
    const size_t begin = output->size();
    output->resize(begin + elements * DTypeSize(dtype()));
    if (!is_needed(first, first + elements)) return absl::OkStatus();
    return Decoder(header, geometry(), block, &buffers_)
        .Decode(dtype(), bytes, &rotator_,
                reinterpret_cast<uint8_t*>(output->data() + begin));
  }

  absl::Status DecodeTo(const TensorHeader& header, const Block& block,
                        absl::Span<const uint8_t> bytes, BlockDecoder*,
                        uint8_t* tensor) override {
    return Decoder(header, geometry(), block, &buffers_)
        .Decode(dtype(), bytes, &rotator_,
                tensor + geometry().RowBegin(block, 0) * DTypeSize(dtype()));
  }

 private:
  Rotator rotator_;
  DecoderBuffers buffers_;
};

}  // namespace

std::unique_ptr<BlockDecoder> NewIdentityDecoder(uint8_t mode,
                                                 const TensorSpec& spec) {
  if (mode != kModeIdentity) return nullptr;
  return std::make_unique<IdentityDecoder>(spec);
}

// A block that is not whole yet, the sines and cosines of its tokens, and what
// it is decoded in. The first block is the largest.
DecoderBounds BoundsOfIdentityDecoder(const TensorSpec& spec,
                                      uint64_t elements) {
  if (elements == 0) return {};
  const uint64_t integers = std::min<uint64_t>(elements, kInt8BlockElements);
  DecoderBounds bounds = {.block = integers, .memory = Int8Size(integers)};
  const Geometry geometry(spec, Cut::kConsecutive);
  if (geometry.codable()) {
    const Block block = geometry.block(0);
    const uint64_t coded = geometry.Elements(block);
    bounds.block = std::max(bounds.block, coded);
    bounds.memory = MaxBlockSize(coded) + BuffersSize(geometry, block) +
                    Rotator::MaxMemory(geometry.tokens(), geometry.channels(),
                                       block.tokens);
  }
  bounds.block *= DTypeSize(spec.dtype);
  return bounds;
}

}  // namespace kvcompress::coding
