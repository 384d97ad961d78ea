// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/block_decoder.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "codecs/klt/reconstruct.h"
#include "coding/block_reader.h"
#include "coding/identity/block_decoder.h"
#include "coding/strip.h"
#include "entropy/tables.h"
#include "kernels/kernels.h"
#include "quantization/exceptions.h"
#include "quantization/rope.h"
#include "quantization/steps.h"
#include "quantization/trellis.h"
#include "status/macros.h"
#include "tensor/grow.h"
#include "transform/basis.h"
#include "transform/layout.h"

namespace kvcompress::klt {
namespace {

using Bytes = absl::Span<const uint8_t>;
using coding::BlockHeader;
using coding::kEscape;
using coding::kMaxLanes;
using coding::kMaxQuantum;
using coding::kNoTable;
using coding::LaneCoding;
using coding::Strip;
using coding::TensorHeader;

// What one block after the other is decoded in.
struct DecoderMemory {
  std::vector<int32_t> levels;  // of a group, or of all that share strips
  std::vector<int8_t> symbols;
  coding::Rotator rotator;
};

// Of one block. `bases` has those of the groups of the block before it in its
// part of the heads, none for the first, and takes those of this one.
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
        sinks_(header.Int8Sinks(block)),
        reader_(header, geometry, block) {}

  // Writes the elements to heads of [tokens, channels], `head_stride` elements
  // apart at `out`; only the bases are read when `out` is null.
  absl::Status Decode(DType dtype, Bytes bytes, size_t head_stride,
                      uint8_t* out) {
    KVC_RETURN_IF_ERROR(reader_.Open(bytes, geometry_.Groups(block_)));
    KVC_RETURN_IF_ERROR(reader_.ReadSideData(&content_));
    KVC_RETURN_IF_ERROR(ReadOffsets());
    KVC_RETURN_IF_ERROR(ReadBases(reader_.counts()));
    if (out == nullptr) return absl::OkStatus();
    GroupReconstructor reconstructor(header_, geometry_, block_, content_,
                                     &memory_.rotator, dtype, head_stride, out);
    KVC_RETURN_IF_ERROR(ReadLevels(&reconstructor));
    KVC_RETURN_IF_ERROR(reader_.Finish(&content_));
    reconstructor.PutSinks();
    return coding::ApplyExceptions(reader_.exceptions(), dtype, block_.heads,
                                   block_.tokens * channels_, head_stride, out);
  }

 private:
  absl::Status ReadOffsets() {
    const uint8_t table = reader_.header().offset_table;
    if (table == BlockHeader::kNoOffsets) {
      content_.offsets.resize(block_.tokens);
      return absl::OkStatus();
    }
    int64_t offset = 0;
    return reader_.ReadSymbols(
        "offsets", block_.tokens, [&](size_t) { return table; },
        [&](int64_t value) {
          offset += value;
          if (offset < coding::kMinOffset || offset > coding::kMaxOffset) {
            return false;
          }
          content_.offsets.push_back(static_cast<int8_t>(offset));
          return true;
        });
  }

  absl::Status ReadBases(Bytes counts) {
    if (counts[0] == kSameBasis) {
      if (bases_.empty()) {
        return absl::DataLossError(
            "the bases are those of the block before, and there is none");
      }
      if (std::count(counts.begin(), counts.end(), kSameBasis) !=
          static_cast<int64_t>(counts.size())) {
        return absl::DataLossError(
            "the bases are those of the block before for some groups only");
      }
      return absl::OkStatus();
    }
    size_t total = 0;
    for (size_t group = 0; group < counts.size(); ++group) {
      const size_t most =
          std::min(kMaxVectors, geometry_.GroupSize(block_, group));
      if (counts[group] > most) {
        return absl::DataLossError(
            absl::StrCat("group ", group, " has ", counts[group],
                         " reflectors, of at most ", most));
      }
      total += counts[group];
    }
    std::vector<uint8_t> classes;
    size_t group = 0;
    size_t left = counts[0];  // reflectors of the group
    int64_t klass = kFirstReflectorClass;
    KVC_RETURN_IF_ERROR(reader_.ReadSymbols(
        "classes of reflectors", total,
        [&](size_t) { return reader_.header().reflector_table; },
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
        }));
    return ReadReflectors(counts, classes);
  }

  absl::Status ReadReflectors(Bytes counts, Bytes classes) {
    std::vector<uint8_t> class_of;  // of each integer
    for (size_t group = 0, next = 0; group < counts.size(); ++group) {
      const size_t size = geometry_.GroupSize(block_, group);
      for (size_t j = 0; j < counts[group]; ++j, ++next) {
        class_of.insert(class_of.end(), size - j, classes[next]);
      }
    }
    std::vector<int32_t> integers;
    integers.reserve(class_of.size());
    KVC_RETURN_IF_ERROR(reader_.ReadSymbols(
        "integers of reflectors", class_of.size(),
        [&](size_t i) { return class_of[i]; },
        [&](int64_t value) {
          if (std::abs(value) > coding::kMaxReflector) return false;
          integers.push_back(static_cast<int32_t>(value));
          return true;
        }));
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
    return absl::OkStatus();
  }

  // Each group becomes values as soon as it is whole, while it is still in a
  // near cache.
  absl::Status ReadLevels(GroupReconstructor* reconstructor) {
    const bool apart = geometry_.GroupFirst(1) % kMaxLanes == 0;
    Grow(apart ? geometry_.GroupSize(block_, 0) * block_.tokens
               : geometry_.Elements(block_),
         &memory_.levels);
    size_t group = 0;
    for (size_t first = 0; first < all_channels_; first += kMaxLanes) {
      levels_begin_ = apart ? geometry_.GroupBegin(block_, group) : 0;
      Strip strip(geometry_.Layout(block_), content_.classes, first, kMaxClass);
      const absl::Status read =
          header_.trellis ? ReadTrellis(&strip) : ReadStrip(&strip);
      if (!read.ok()) {
        return absl::DataLossError(absl::StrCat(
            "the strip of components from ", first, " on: ", read.message()));
      }
      for (; group < bases_.size() &&
             geometry_.GroupFirst(group) + bases_[group].size() <=
                 first + strip.size();
           ++group) {
        reconstructor->PutGroup(
            group, bases_[group],
            &memory_
                 .levels[geometry_.GroupBegin(block_, group) - levels_begin_]);
      }
    }
    return absl::OkStatus();
  }

  int32_t* LevelAt(const Strip& strip, size_t lane, size_t token) {
    return &memory_.levels[strip.Place(lane, token) - levels_begin_];
  }

  static absl::Status NoEscape(size_t token) {
    return absl::DataLossError(
        absl::StrCat("the list of escapes has no valid one for token ", token));
  }
  static absl::Status BeyondLimit(size_t token) {
    return absl::DataLossError(
        absl::StrCat("a quantum of token ", token, " is beyond 2^20"));
  }

  absl::Status ReadStrip(Strip* strip) {
    const size_t tokens = block_.tokens - sinks_;
    std::vector<const uint8_t*> tables;
    tables.reserve(tokens);
    for (size_t t = sinks_; t < block_.tokens; ++t) {
      tables.push_back(strip->At(content_.offsets[t]).tables);
    }
    memory_.symbols.resize(tokens * kMaxLanes);
    if (!reader_.rans().ReadRows(tables, absl::MakeSpan(memory_.symbols))) {
      return absl::DataLossError("the words end within it");
    }
    for (size_t i = 0; i < tokens; ++i) {
      if (strip->is_run()) {
        // Up to the next token that has an escape.
        const size_t begin = i;
        i += kernels::Active().rows.widen(&memory_.symbols[i * kMaxLanes],
                                          {.rows = tokens - i,
                                           .columns = strip->size(),
                                           .stride = strip->stride()},
                                          LevelAt(*strip, 0, sinks_ + i));
        for (size_t t = sinks_ + begin; t < sinks_ + i; ++t) {
          KVC_RETURN_IF_ERROR(AddLowBits(strip->At(content_.offsets[t]), t,
                                         LevelAt(*strip, 0, t)));
        }
        if (i == tokens) break;
      }
      const LaneCoding& at = strip->At(content_.offsets[sinks_ + i]);
      for (size_t lane = 0; lane < strip->size(); ++lane) {
        int64_t quantum;
        if (!reader_.Resolve(memory_.symbols[i * kMaxLanes + lane],
                             at.low_counts[lane], &quantum)) {
          return NoEscape(sinks_ + i);
        }
        if (std::abs(quantum) > kMaxQuantum) return BeyondLimit(sinks_ + i);
        *LevelAt(*strip, lane, sinks_ + i) = static_cast<int32_t>(quantum);
      }
    }
    return absl::OkStatus();
  }

  // To the levels of a token, which have none yet.
  absl::Status AddLowBits(const LaneCoding& coding, size_t token,
                          int32_t* levels) {
    for (uint32_t lanes = coding.low_lanes; lanes != 0; lanes &= lanes - 1) {
      const int lane = std::countr_zero(lanes);
      const int count = coding.low_counts[lane];
      levels[lane] = levels[lane] * (1 << count) +
                     static_cast<int32_t>(reader_.low_bits().Get(count));
      if (std::abs(levels[lane]) > kMaxQuantum) return BeyondLimit(token);
    }
    return absl::OkStatus();
  }

  // The tables of a token depend on what the one before it had.
  absl::Status ReadTrellis(Strip* strip) {
    uint8_t tables[kMaxLanes];
    std::fill(tables + strip->size(), tables + kMaxLanes, kNoTable);
    int8_t symbols[kMaxLanes];
    uint8_t states[kMaxLanes] = {};
    for (size_t t = sinks_; t < block_.tokens; ++t) {
      const LaneCoding& at = strip->At(content_.offsets[t]);
      for (size_t lane = 0; lane < strip->size(); ++lane) {
        tables[lane] = at.Table(lane, coding::IsOddState(states[lane]));
      }
      if (!reader_.rans().ReadRow(tables, absl::MakeSpan(symbols))) {
        return absl::DataLossError(absl::StrCat("the words end at token ", t));
      }
      for (size_t lane = 0; lane < strip->size(); ++lane) {
        int64_t quantum = symbols[lane];
        const int low_bits = at.low_counts[lane];
        if (symbols[lane] == kEscape || low_bits > 0) {
          if (!reader_.Resolve(symbols[lane], low_bits, &quantum)) {
            return NoEscape(t);
          }
          if (std::abs(quantum) > kMaxQuantum) return BeyondLimit(t);
        }
        *LevelAt(*strip, lane, t) =
            coding::LevelOf(quantum, coding::IsOddState(states[lane]));
        states[lane] = coding::NextState(states[lane], quantum);
      }
    }
    return absl::OkStatus();
  }

  const TensorHeader& header_;
  const Geometry& geometry_;
  const Block& block_;
  std::vector<coding::Matrix>& bases_;
  DecoderMemory& memory_;
  const size_t channels_;      // of a head
  const size_t all_channels_;  // of all heads
  const size_t sinks_;
  coding::BlockReader reader_;
  BlockContent content_;
  size_t levels_begin_ = 0;  // which of the block's memory_.levels begin with
};

class KltDecoder : public coding::BlockDecoder {
 public:
  explicit KltDecoder(const TensorSpec& spec)
      : BlockDecoder(spec, coding::Cut::kAcrossHeads), groups_(spec) {}

  absl::Status Decode(const TensorHeader& header, const Block& block,
                      Bytes bytes, IsNeeded is_needed,
                      std::string* output) override {
    const uint64_t head_size = groups_.tokens() * groups_.channels();
    const uint64_t first = block.first_head * head_size;
    output->resize(block.heads * head_size * DTypeSize(dtype()));
    if (block.first_token == 0) bases_.clear();
    bool needed = false;
    bool later_needed = false;  // may have the bases of this one
    for (size_t h = 0; h < block.heads; ++h) {
      const uint64_t begin = groups_.RowBegin(block, h * block.tokens);
      const uint64_t end = begin + block.tokens * groups_.channels();
      const uint64_t head_end = first + (h + 1) * head_size;
      needed |= is_needed(begin, end);
      later_needed |= end < head_end && is_needed(end, head_end);
    }
    if (!needed && !later_needed) return absl::OkStatus();
    uint8_t* const out =
        reinterpret_cast<uint8_t*>(output->data()) +
        (groups_.RowBegin(block, 0) - first) * DTypeSize(dtype());
    return Decoder(header, groups_, block, &bases_, &memory_)
        .Decode(dtype(), bytes, head_size, needed ? out : nullptr);
  }

  bool BeginsAnew(const TensorHeader& header, const Block& block,
                  Bytes bytes) const override {
    coding::BlockReader reader(header, groups_, block);
    return !reader.Open(bytes, groups_.Groups(block)).ok() ||
           reader.counts()[0] != kSameBasis;
  }

  absl::Status DecodeTo(const TensorHeader& header, const Block& block,
                        Bytes bytes, coding::BlockDecoder* before,
                        uint8_t* tensor) override {
    if (before == nullptr) bases_.clear();
    std::vector<coding::Matrix>* const bases =
        before == nullptr ? &bases_ : &static_cast<KltDecoder*>(before)->bases_;
    return Decoder(header, groups_, block, bases, &memory_)
        .Decode(dtype(), bytes, groups_.tokens() * groups_.channels(),
                tensor + groups_.RowBegin(block, 0) * DTypeSize(dtype()));
  }

  void TakeForOthers(coding::BlockDecoder* other) override {
    bases_.swap(static_cast<KltDecoder*>(other)->bases_);
  }

 private:
  const Geometry groups_;
  std::vector<coding::Matrix> bases_;  // of the groups of the block before
  DecoderMemory memory_;
};

}  // namespace

std::unique_ptr<coding::BlockDecoder> NewKltDecoder(uint8_t mode,
                                                    const TensorSpec& spec) {
  if (mode != coding::kModeKlt) return coding::NewIdentityDecoder(mode, spec);
  return std::make_unique<KltDecoder>(spec);
}

// The output of a part of the heads; a block that is not whole yet; its levels,
// symbols and bases; sines and cosines. The first part and the first block are
// the largest, but symbols grow after a block with sinks, to at most twice as
// many.
DecoderBounds BoundsOfKltDecoder(const TensorSpec& spec, uint64_t elements) {
  DecoderBounds bounds = coding::BoundsOfIdentityDecoder(spec, elements);
  const Geometry geometry(spec);
  if (!geometry.codable()) return bounds;
  const Block block = geometry.block(0);
  const uint64_t coded = geometry.Elements(block);
  const uint64_t channels = geometry.channels();
  const uint64_t matrix = coding::RoundUp(geometry.GroupSize(block, 0), 2) *
                          geometry.GroupSize(block, 0) * sizeof(int16_t);
  bounds.memory = std::max(
      bounds.memory,
      block.heads * geometry.tokens() * channels * DTypeSize(spec.dtype) +
          coding::MaxBlockSize(coded) + coded * sizeof(int32_t) +
          2 * block.tokens * kMaxLanes + geometry.Groups(block) * matrix +
          coding::Rotator::MaxMemory(geometry.tokens(), channels,
                                     block.tokens));
  return bounds;
}

}  // namespace kvcompress::klt
