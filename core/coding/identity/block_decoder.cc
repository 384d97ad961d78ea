// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/block_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "coding/identity/reconstruct.h"
#include "coding/strip.h"
#include "entropy/bits.h"
#include "entropy/escapes.h"
#include "entropy/rans.h"
#include "entropy/tables.h"
#include "kernels/elements.h"
#include "tensor/grow.h"

namespace kvcompress::coding {
namespace {

using Bytes = absl::Span<const uint8_t>;

size_t StripsOf(size_t channels) {
  return (channels + kMaxLanes - 1) / kMaxLanes;
}

class Decoder {
 public:
  Decoder(const TensorHeader& header, const Geometry& geometry,
          const Block& block, DecoderBuffers* buffers)
      : header_(header),
        geometry_(geometry),
        block_(block),
        buffers_(*buffers),
        channels_(geometry.channels()),
        all_channels_(block.heads * channels_),
        lanes_(geometry.Lanes(block)),
        sinks_(header.Int8Sinks(block)),
        coded_tokens_(block.tokens - sinks_),
        runs_(RunsOf(header, geometry, block, sinks_)) {}

  bool Decode(DType dtype, Bytes bytes, Rotator* rotator,
              std::string* decoded) {
    const size_t elements = geometry_.Elements(block_);
    const std::optional<BlockHeader> sizes = ReadBlockHeader(bytes, elements);
    if (!sizes) return false;
    Cutter cutter(bytes.subspan(kBlockHeaderSize));
    const auto states = cutter.Take(lanes_ * sizeof(uint32_t));
    const auto words = cutter.Take(uint64_t{2} * sizes->words);
    const auto escapes = cutter.Take(sizes->escapes);
    const auto sink_scales = cutter.Take(2 * block_.heads * sinks_);
    const auto sink_codes = cutter.Take(all_channels_ * sinks_);
    const auto exceptions = cutter.Take(sizes->exceptions);
    if (!states || !words || !escapes || !sink_scales || !sink_codes ||
        !exceptions) {
      return false;
    }
    RansDecoder rans(*states, *words);
    Escapes escape_list(*escapes);
    BitReader low_bits(cutter.left());
    if (!rans.valid() || !ReadSideData(*sizes, &rans, &escape_list) ||
        !AddLowBitsOfMeans(sizes->mean_shift, &low_bits) ||
        !ReadQuanta(&rans, &escape_list, &low_bits) ||
        !ReadSinks(*sink_scales, *sink_codes) || !rans.AtEnd() ||
        !escape_list.AtEnd() || !low_bits.AtEnd()) {
      return false;
    }
    const Reconstructor reconstructor(header_, geometry_, block_, content_,
                                      rotator);
    const size_t first = decoded->size();
    float values[kMaxTileElements];
    uint8_t tile[kMaxTileElements * sizeof(float)];
    geometry_.ForEachTile(block_, [&](size_t h, size_t begin, size_t end) {
      const size_t count = (end - begin) * channels_;
      reconstructor.Restore(
          h, begin, end,
          [&](size_t t, size_t run_end, const kernels::DequantizeStep& step,
              float* rows) { Dequantize(h, t, run_end, step, rows); },
          values);
      StoreElements(dtype, absl::MakeConstSpan(values, count), tile);
      decoded->append(reinterpret_cast<const char*>(tile),
                      count * DTypeSize(dtype));
    });
    return ApplyExceptions(*exceptions, dtype, elements,
                           reinterpret_cast<uint8_t*>(decoded->data() + first));
  }

 private:
  // Reads `count` numbers in rows under one table.
  template <typename Take>
  bool ReadSymbols(size_t count, uint8_t table, RansDecoder* rans,
                   Escapes* escapes, Take take) {
    uint8_t tables[kMaxLanes];
    int8_t symbols[kMaxLanes];
    for (size_t first = 0; first < count; first += lanes_) {
      const size_t size = std::min(lanes_, count - first);
      std::fill(tables, tables + size, table);
      std::fill(tables + size, tables + kMaxLanes, kNoTable);
      if (!rans->ReadRow(tables, absl::MakeSpan(symbols))) return false;
      for (size_t lane = 0; lane < size; ++lane) {
        int32_t value = symbols[lane];
        if (value == kEscape && !escapes->Next(&value)) return false;
        if (!take(value)) return false;
      }
    }
    return true;
  }

  bool ReadSideData(const BlockHeader& sizes, RansDecoder* rans,
                    Escapes* escapes) {
    SideData& side = content_.side;
    const auto take_class = [&](int32_t value) {
      value += sizes.class_middle;
      if (value < 0 || value >= kClasses) return false;
      side.classes.push_back(static_cast<uint8_t>(value));
      return true;
    };
    const auto take_mean = [&](int32_t value) {
      if (std::abs(value) > kMaxMean) return false;
      side.means.push_back(value);
      return true;
    };
    const auto take_norm = [&](int32_t value) {
      value += sizes.norm_middle;
      if (value < 0 || value >= kNormEnd) return false;
      side.norms.push_back(static_cast<uint16_t>(value));
      return true;
    };
    return ReadSymbols(all_channels_, sizes.class_table, rans, escapes,
                       take_class) &&
           ReadSymbols(all_channels_, sizes.mean_table, rans, escapes,
                       take_mean) &&
           (!header_.norms ||
            ReadSymbols(block_.heads * block_.tokens, sizes.norm_table, rans,
                        escapes, take_norm));
  }

  bool AddLowBitsOfMeans(int shift, BitReader* low_bits) {
    for (int32_t& mean : content_.side.means) {
      const int64_t whole =
          int64_t{mean} * (int64_t{1} << shift) + low_bits->Get(shift);
      if (std::abs(whole) > kMaxMean) return false;
      mean = static_cast<int32_t>(whole);
    }
    return true;
  }

  // Symbols stay as they are, row by row; beside them are the escapes. Strips
  // with low bits become quanta.
  bool ReadQuanta(RansDecoder* rans, Escapes* escapes, BitReader* low_bits) {
    const size_t strips = StripsOf(all_channels_);
    // As many as of a block without sinks, so that they need not grow.
    Grow(strips * block_.tokens * kMaxLanes, &buffers_.symbols);
    for (size_t index = 0; index < strips; ++index) {
      StripContent& content = strips_.emplace_back();
      for (const Run& run : runs_) {
        const Strip strip(geometry_, block_, content_.side.classes,
                          index * kMaxLanes, run.shift);
        tables_.assign(run.end - run.begin, strip.coding.tables);
        int8_t* const symbols = SymbolsAt(index, run.begin);
        if (!rans->ReadRows(
                tables_, absl::MakeSpan(symbols, tables_.size() * kMaxLanes))) {
          return false;
        }
        content.has_quanta[run.shift] = strip.coding.low_lanes != 0;
        if (!(strip.coding.low_lanes != 0
                  ? ReadLowBits(strip, run, symbols, escapes, low_bits)
                  : FindEscapes(run, symbols, escapes, &content))) {
          return false;
        }
      }
    }
    return true;
  }

  int8_t* SymbolsAt(size_t strip, size_t token) {
    return &buffers_
                .symbols[(strip * coded_tokens_ + token - sinks_) * kMaxLanes];
  }

  bool ReadLowBits(const Strip& strip, const Run& run, const int8_t* symbols,
                   Escapes* escapes, BitReader* low_bits) {
    Grow(geometry_.Elements(block_), &buffers_.quanta);
    for (size_t t = run.begin; t < run.end; ++t, symbols += kMaxLanes) {
      int32_t* const quanta = &buffers_.quanta[t * channels_];
      for (size_t lane = 0; lane < strip.size; ++lane) {
        int32_t symbol = symbols[lane];
        if (symbol == kEscape && !escapes->Next(&symbol)) return false;
        const int count = strip.coding.low_counts[lane];
        const int64_t quantum =
            int64_t{symbol} * (int64_t{1} << count) + low_bits->Get(count);
        if (std::abs(quantum) > kMaxQuantum) return false;
        quanta[strip.position[lane]] = static_cast<int32_t>(quantum);
      }
    }
    return true;
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

  static bool FindEscapes(const Run& run, const int8_t* symbols,
                          Escapes* escapes, StripContent* content) {
    const int8_t* const end = symbols + (run.end - run.begin) * kMaxLanes;
    for (const int8_t* at = symbols;; ++at) {
      at = static_cast<const int8_t*>(
          std::memchr(at, kEscape & 0xff, static_cast<size_t>(end - at)));
      if (at == nullptr) return true;
      const auto index = static_cast<size_t>(at - symbols);
      Escape escape = {.token = run.begin + index / kMaxLanes,
                       .lane = index % kMaxLanes};
      if (!escapes->Next(&escape.quantum)) return false;
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

  bool ReadSinks(Bytes scales, Bytes codes) {
    content_.sink_scales.resize(block_.heads * sinks_);
    if (sinks_ == 0) return true;
    std::memcpy(content_.sink_scales.data(), scales.data(), scales.size());
    content_.sink_codes.assign(codes.begin(), codes.end());
    return std::all_of(content_.sink_scales.begin(), content_.sink_scales.end(),
                       Int8Scale::Valid) &&
           std::find(content_.sink_codes.begin(), content_.sink_codes.end(),
                     int8_t{-128}) == content_.sink_codes.end();
  }

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  DecoderBuffers& buffers_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t lanes_;
  const size_t sinks_;
  const size_t coded_tokens_;  // that are no integers
  const std::vector<Run> runs_;
  BlockContent content_;
  std::vector<StripContent> strips_;
  std::vector<const uint8_t*> tables_;  // of the rows of a run
};

}  // namespace

uint64_t BuffersSize(const Geometry& geometry, const Block& block) {
  const size_t strips = StripsOf(block.heads * geometry.channels());
  return strips * block.tokens * kMaxLanes * sizeof(int8_t) +
         geometry.Elements(block) * sizeof(int32_t);
}

bool DecodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, DType dtype,
                 absl::Span<const uint8_t> bytes, Rotator* rotator,
                 DecoderBuffers* buffers, std::string* decoded) {
  return Decoder(header, geometry, block, buffers)
      .Decode(dtype, bytes, rotator, decoded);
}

}  // namespace kvcompress::coding
