// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/block_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "codecs/ecsq/bits.h"
#include "codecs/ecsq/lists.h"
#include "codecs/ecsq/rans.h"
#include "codecs/ecsq/reconstruct.h"
#include "codecs/ecsq/strip.h"
#include "codecs/ecsq/tables.h"
#include "kernels/elements.h"

namespace kvcompress::ecsq {
namespace {

using Bytes = absl::Span<const uint8_t>;

class Decoder {
 public:
  Decoder(const TensorHeader& header, const Geometry& geometry,
          const Block& block)
      : header_(header),
        geometry_(geometry),
        block_(block),
        channels_(geometry.channels()),
        all_channels_(block.heads * channels_),
        lanes_(geometry.Lanes(block)),
        sinks_(header.Int8Sinks(block)) {}

  bool Decode(DType dtype, Bytes bytes, Rotator* rotator, uint8_t* out) {
    const size_t elements = geometry_.Elements(block_);
    const std::optional<BlockHeader> sizes = ReadBlockHeader(bytes, elements);
    if (!sizes) return false;
    Cutter cutter(bytes.subspan(kBlockHeaderSize));
    const auto states = cutter.Take(lanes_ * sizeof(uint32_t));
    const auto words = cutter.Take(uint64_t{2} * sizes->words);
    const auto escapes = cutter.Take(sizes->escapes);
    const auto sink_scales = cutter.Take(2 * block_.heads * sinks_);
    const auto sink_codes = cutter.Take(all_channels_ * sinks_);
    const auto patches = cutter.Take(sizes->patches);
    if (!states || !words || !escapes || !sink_scales || !sink_codes ||
        !patches) {
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
    const auto values = std::make_unique_for_overwrite<float[]>(elements);
    Reconstruct(header_, geometry_, block_, content_, rotator, values.get());
    StoreElements(dtype, absl::MakeConstSpan(values.get(), elements), out);
    return ApplyPatches(*patches, dtype, elements, out);
  }

 private:
  // Reads `count` numbers in rows under one table.
  template <typename Take>
  bool ReadNumbers(size_t count, uint8_t table, RansDecoder* rans,
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
    return ReadNumbers(all_channels_, sizes.class_table, rans, escapes,
                       take_class) &&
           ReadNumbers(all_channels_, sizes.mean_table, rans, escapes,
                       take_mean) &&
           (!header_.norms ||
            ReadNumbers(block_.heads * block_.tokens, sizes.norm_table, rans,
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

  bool ReadQuanta(RansDecoder* rans, Escapes* escapes, BitReader* low_bits) {
    content_.quanta =
        std::make_unique_for_overwrite<int32_t[]>(geometry_.Elements(block_));
    for (size_t group = 0; group < all_channels_; group += kMaxLanes) {
      const auto read = [&](size_t begin, size_t end, int shift) {
        return ReadStrip(
            Strip(geometry_, block_, content_.side.classes, group, shift),
            begin, end, rans, escapes, low_bits);
      };
      if (!ForEachRun(header_, geometry_, block_, sinks_, read)) return false;
    }
    return true;
  }

  bool ReadStrip(const Strip& strip, size_t begin, size_t end,
                 RansDecoder* rans, Escapes* escapes, BitReader* low_bits) {
    symbols_.resize((end - begin) * kMaxLanes);
    const std::vector<const uint8_t*> tables(end - begin, strip.coding.tables);
    if (!rans->ReadRows(tables, absl::MakeSpan(symbols_))) return false;
    const int8_t* symbols = symbols_.data();
    for (size_t t = begin; t < end; ++t, symbols += kMaxLanes) {
      int32_t* quanta = &content_.quanta[t * channels_];
      if (strip.is_run && !strip.coding.has_low_bits) {
        const size_t done = kernels::Active().rows.widen(
            symbols,
            {.rows = end - t, .columns = strip.size, .stride = channels_},
            quanta + strip.position[0]);
        t += done;
        if (t == end) break;
        symbols += done * kMaxLanes;
        quanta += done * channels_;
      }
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
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t lanes_;
  const size_t sinks_;
  BlockContent content_;
  std::vector<int8_t> symbols_;
};

}  // namespace

bool DecodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, DType dtype,
                 absl::Span<const uint8_t> bytes, Rotator* rotator,
                 uint8_t* out) {
  return Decoder(header, geometry, block).Decode(dtype, bytes, rotator, out);
}

}  // namespace kvcompress::ecsq
