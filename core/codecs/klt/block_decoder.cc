// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/block_decoder.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "codecs/klt/reconstruct.h"
#include "codecs/klt/strip.h"
#include "coding/format.h"
#include "coding/identity/reconstruct.h"
#include "entropy/bits.h"
#include "entropy/escapes.h"
#include "entropy/rans.h"
#include "entropy/tables.h"
#include "kernels/kernels.h"
#include "quantization/exceptions.h"
#include "quantization/trellis.h"
#include "tensor/grow.h"

namespace kvcompress::klt {
namespace {

using Bytes = absl::Span<const uint8_t>;
using coding::kEscape;
using coding::kMaxLanes;
using coding::kNoTable;
using coding::SplitClass;

class Decoder {
 public:
  Decoder(const TensorHeader& header, const Geometry& geometry,
          const Block& block, std::vector<coding::Matrix>* bases,
          DecoderMemory* memory)
      : header_(header),
        geometry_(geometry),
        block_(block),
        bases_(*bases),
        memory_(*memory),
        channels_(geometry.channels()),
        all_channels_(geometry.Channels(block)),
        lanes_(std::min<size_t>(kMaxLanes, all_channels_)),
        sinks_(header.Sinks(block)) {}

  bool Decode(DType dtype, Bytes bytes, size_t head_stride, uint8_t* out) {
    const size_t elements = geometry_.Elements(block_);
    const std::optional<BlockHeader> sizes = ReadBlockHeader(bytes, elements);
    if (!sizes) return false;
    coding::Cutter cutter(bytes.subspan(kBlockHeaderSize));
    const auto counts = cutter.Take(geometry_.Groups(block_));
    const auto states = cutter.Take(lanes_ * sizeof(uint32_t));
    const auto words = cutter.Take(uint64_t{2} * sizes->words);
    const auto escapes = cutter.Take(sizes->escapes);
    const auto sink_scales = cutter.Take(2 * block_.heads * sinks_);
    const auto sink_codes = cutter.Take(all_channels_ * sinks_);
    const auto exceptions = cutter.Take(sizes->exceptions);
    if (!counts || !states || !words || !escapes || !sink_scales ||
        !sink_codes || !exceptions) {
      return false;
    }
    rans_.emplace(*states, *words);
    escapes_.emplace(*escapes);
    low_bits_.emplace(cutter.left());
    if (!rans_->valid() || !ReadClasses(*sizes) || !ReadMeans(*sizes) ||
        !ReadNorms(*sizes) || !ReadOffsets(*sizes) ||
        !ReadBases(*sizes, *counts)) {
      return false;
    }
    if (out == nullptr) return true;
    Reconstructor reconstructor(header_, geometry_, block_, content_,
                                &memory_.reconstructor, dtype, head_stride,
                                out);
    if (!ReadLevels(&reconstructor) || !ReadSinks(*sink_scales, *sink_codes) ||
        !rans_->AtEnd() || !escapes_->AtEnd() || !low_bits_->AtEnd()) {
      return false;
    }
    reconstructor.PutSinks();
    return coding::ApplyExceptions(*exceptions, dtype, block_.heads,
                                   block_.tokens * channels_, head_stride, out);
  }

 private:
  // Reads `count` numbers in rows, number i under `class_of(i)`: its symbol,
  // and the low bits of that class.
  template <typename ClassOf, typename Take>
  bool ReadSymbols(size_t count, ClassOf class_of, Take take) {
    constexpr size_t kRows = 32;  // at a time
    uint8_t tables[kRows][kMaxLanes];
    int low_counts[kRows][kMaxLanes];
    int8_t symbols[kRows][kMaxLanes];
    const uint8_t* row_tables[kRows];
    for (size_t first = 0; first < count;) {
      size_t rows = 0;
      size_t end = first;
      for (; rows < kRows && end < count; ++rows) {
        row_tables[rows] = tables[rows];
        std::fill_n(tables[rows], kMaxLanes, kNoTable);
        for (size_t lane = 0; lane < lanes_ && end < count; ++lane, ++end) {
          const SplitClass split(class_of(end));
          tables[rows][lane] = static_cast<uint8_t>(split.table);
          low_counts[rows][lane] = split.low_bits;
        }
      }
      if (!rans_->ReadRows(absl::MakeConstSpan(row_tables, rows),
                           absl::MakeSpan(symbols[0], rows * kMaxLanes))) {
        return false;
      }
      for (size_t row = 0; first < end; ++row) {
        for (size_t lane = 0; lane < lanes_ && first < end; ++lane, ++first) {
          int64_t value;
          if (!Resolve(symbols[row][lane], low_counts[row][lane], &value) ||
              !take(value)) {
            return false;
          }
        }
      }
    }
    return true;
  }

  bool Resolve(int32_t symbol, int low_count, int64_t* value) {
    if (symbol == kEscape && !escapes_->Next(&symbol)) return false;
    *value =
        int64_t{symbol} * (int64_t{1} << low_count) + low_bits_->Get(low_count);
    return true;
  }

  bool ReadClasses(const BlockHeader& sizes) {
    return ReadSymbols(
        all_channels_, [&](size_t) { return sizes.class_table; },
        [&](int64_t value) {
          value += sizes.class_middle;
          if (value < 0 || value >= coding::kClasses) return false;
          content_.classes.push_back(static_cast<uint8_t>(value));
          return true;
        });
  }

  bool ReadMeans(const BlockHeader& sizes) {
    if (!ReadSymbols(
            all_channels_, [&](size_t) { return sizes.mean_table; },
            [&](int64_t value) {
              if (std::abs(value) > coding::kMaxMean) return false;
              content_.means.push_back(static_cast<int32_t>(value));
              return true;
            })) {
      return false;
    }
    for (int32_t& mean : content_.means) {
      const int64_t whole = int64_t{mean} * (int64_t{1} << sizes.mean_shift) +
                            low_bits_->Get(sizes.mean_shift);
      if (std::abs(whole) > coding::kMaxMean) return false;
      mean = static_cast<int32_t>(whole);
    }
    return true;
  }

  bool ReadNorms(const BlockHeader& sizes) {
    if (!header_.norms) return true;
    return ReadSymbols(
        block_.heads * block_.tokens, [&](size_t) { return sizes.norm_table; },
        [&](int64_t value) {
          value += sizes.norm_middle;
          if (value < 0 || value >= coding::kNormEnd) return false;
          content_.norms.push_back(static_cast<uint16_t>(value));
          return true;
        });
  }

  bool ReadOffsets(const BlockHeader& sizes) {
    if (sizes.offset_table == BlockHeader::kNoOffsets) {
      content_.offsets.resize(block_.tokens);
      return true;
    }
    int64_t offset = 0;
    return ReadSymbols(
        block_.tokens, [&](size_t) { return sizes.offset_table; },
        [&](int64_t value) {
          offset += value;
          if (offset < kMinOffset || offset > kMaxOffset) return false;
          content_.offsets.push_back(static_cast<int8_t>(offset));
          return true;
        });
  }

  bool ReadBases(const BlockHeader& sizes, Bytes counts) {
    if (counts[0] == kSameBasis) {
      return !bases_.empty() &&
             std::count(counts.begin(), counts.end(), kSameBasis) ==
                 static_cast<int64_t>(counts.size());
    }
    size_t total = 0;
    for (size_t group = 0; group < counts.size(); ++group) {
      if (counts[group] > kMaxVectors ||
          counts[group] > geometry_.GroupSize(block_, group)) {
        return false;
      }
      total += counts[group];
    }
    std::vector<uint8_t> classes;
    size_t group = 0;
    size_t left = counts[0];  // reflectors of the group
    int64_t klass = kFirstReflectorClass;
    const bool read = ReadSymbols(
        total, [&](size_t) { return sizes.reflector_table; },
        [&](int64_t value) {
          while (left == 0) {
            left = counts[++group];
            klass = kFirstReflectorClass;
          }
          --left;
          klass += value;
          if (klass < 0 || klass >= coding::kClasses) return false;
          classes.push_back(static_cast<uint8_t>(klass));
          return true;
        });
    return read && ReadReflectors(counts, classes);
  }

  bool ReadReflectors(Bytes counts, Bytes classes) {
    std::vector<uint8_t> class_of;  // of each integer
    for (size_t group = 0, next = 0; group < counts.size(); ++group) {
      const size_t size = geometry_.GroupSize(block_, group);
      for (size_t j = 0; j < counts[group]; ++j, ++next) {
        class_of.insert(class_of.end(), size - j, classes[next]);
      }
    }
    std::vector<int32_t> integers;
    integers.reserve(class_of.size());
    if (!ReadSymbols(
            class_of.size(), [&](size_t i) { return class_of[i]; },
            [&](int64_t value) {
              if (std::abs(value) > coding::kMaxReflector) return false;
              integers.push_back(static_cast<int32_t>(value));
              return true;
            })) {
      return false;
    }
    bases_.clear();
    absl::Span<const int32_t> left = integers;
    for (size_t group = 0; group < counts.size(); ++group) {
      coding::Reflectors reflectors(geometry_.GroupSize(block_, group));
      for (size_t j = 0; j < counts[group]; ++j) {
        const size_t length = reflectors.NextLength();
        reflectors.Append(left.subspan(0, length));
        left.remove_prefix(length);
      }
      bases_.push_back(coding::MakeMatrix(reflectors));
    }
    return true;
  }

  // Each group becomes values as soon as it is whole, while it is still in a
  // near cache.
  bool ReadLevels(Reconstructor* reconstructor) {
    const bool apart = geometry_.GroupFirst(1) % kMaxLanes == 0;
    Grow(apart ? geometry_.GroupSize(block_, 0) * block_.tokens
               : geometry_.Elements(block_),
         &memory_.levels);
    size_t group = 0;
    for (size_t first = 0; first < all_channels_; first += kMaxLanes) {
      levels_begin_ = apart ? geometry_.GroupBegin(block_, group) : 0;
      Strip strip(geometry_, block_, content_, first);
      if (!(header_.trellis ? ReadTrellis(&strip) : ReadStrip(&strip))) {
        return false;
      }
      for (; group < bases_.size() &&
             geometry_.GroupFirst(group) + bases_[group].size() <=
                 first + strip.count();
           ++group) {
        reconstructor->PutGroup(
            group, bases_[group],
            &memory_
                 .levels[geometry_.GroupBegin(block_, group) - levels_begin_]);
      }
    }
    return true;
  }

  int32_t* LevelAt(const Strip& strip, size_t lane, size_t token) {
    return &memory_.levels[strip.Place(lane, token) - levels_begin_];
  }

  bool ReadStrip(Strip* strip) {
    const size_t tokens = block_.tokens - sinks_;
    std::vector<const uint8_t*> tables;
    tables.reserve(tokens);
    for (size_t t = sinks_; t < block_.tokens; ++t) {
      tables.push_back(strip->At(content_.offsets[t]).tables);
    }
    memory_.symbols.resize(tokens * kMaxLanes);
    if (!rans_->ReadRows(tables, absl::MakeSpan(memory_.symbols))) return false;
    for (size_t i = 0; i < tokens; ++i) {
      if (strip->is_run()) {
        // Up to the next token that has an escape.
        const size_t begin = i;
        i += kernels::Active().rows.widen(&memory_.symbols[i * kMaxLanes],
                                          {.rows = tokens - i,
                                           .columns = strip->count(),
                                           .stride = strip->stride()},
                                          LevelAt(*strip, 0, sinks_ + i));
        for (size_t t = sinks_ + begin; t < sinks_ + i; ++t) {
          const LaneTables& at = strip->At(content_.offsets[t]);
          if (!AddLowBits(at, LevelAt(*strip, 0, t))) return false;
        }
        if (i == tokens) break;
      }
      const LaneTables& at = strip->At(content_.offsets[sinks_ + i]);
      for (size_t lane = 0; lane < strip->count(); ++lane) {
        int64_t quantum;
        if (!Resolve(memory_.symbols[i * kMaxLanes + lane], at.low_counts[lane],
                     &quantum) ||
            std::abs(quantum) > coding::kMaxQuantum) {
          return false;
        }
        *LevelAt(*strip, lane, sinks_ + i) = static_cast<int32_t>(quantum);
      }
    }
    return true;
  }

  // To the levels of a token, which have none yet.
  bool AddLowBits(const coding::LaneCoding& coding, int32_t* levels) {
    for (uint32_t lanes = coding.low_lanes; lanes != 0; lanes &= lanes - 1) {
      const int lane = std::countr_zero(lanes);
      const int count = coding.low_counts[lane];
      levels[lane] = levels[lane] * (1 << count) +
                     static_cast<int32_t>(low_bits_->Get(count));
      if (std::abs(levels[lane]) > coding::kMaxQuantum) return false;
    }
    return true;
  }

  // The tables of a token depend on what the one before it had.
  bool ReadTrellis(Strip* strip) {
    uint8_t tables[kMaxLanes];
    std::fill(tables + strip->count(), tables + kMaxLanes, kNoTable);
    int8_t symbols[kMaxLanes];
    uint8_t states[kMaxLanes] = {};
    for (size_t t = sinks_; t < block_.tokens; ++t) {
      const LaneTables& at = strip->At(content_.offsets[t]);
      for (size_t lane = 0; lane < strip->count(); ++lane) {
        tables[lane] = at.Table(lane, coding::IsOddState(states[lane]));
      }
      if (!rans_->ReadRow(tables, absl::MakeSpan(symbols))) return false;
      for (size_t lane = 0; lane < strip->count(); ++lane) {
        int64_t quantum = symbols[lane];
        const int low_bits = at.low_counts[lane];
        if ((symbols[lane] == kEscape || low_bits > 0) &&
            (!Resolve(symbols[lane], low_bits, &quantum) ||
             std::abs(quantum) > coding::kMaxQuantum)) {
          return false;
        }
        *LevelAt(*strip, lane, t) =
            coding::LevelOf(quantum, coding::IsOddState(states[lane]));
        states[lane] = coding::NextState(states[lane], quantum);
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
                       coding::Int8Scale::Valid) &&
           std::find(content_.sink_codes.begin(), content_.sink_codes.end(),
                     int8_t{-128}) == content_.sink_codes.end();
  }

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  std::vector<coding::Matrix>& bases_;
  DecoderMemory& memory_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t lanes_;
  const size_t sinks_;
  std::optional<coding::RansDecoder> rans_;
  std::optional<coding::Escapes> escapes_;
  std::optional<coding::BitReader> low_bits_;
  BlockContent content_;
  size_t levels_begin_ = 0;  // which of the block's memory_.levels begin with
};

}  // namespace

bool DecodeBlock(const TensorHeader& header, const Geometry& geometry,
                 const Block& block, DType dtype,
                 absl::Span<const uint8_t> bytes,
                 std::vector<coding::Matrix>* bases, DecoderMemory* memory,
                 size_t head_stride, uint8_t* out) {
  return Decoder(header, geometry, block, bases, memory)
      .Decode(dtype, bytes, head_stride, out);
}

}  // namespace kvcompress::klt
