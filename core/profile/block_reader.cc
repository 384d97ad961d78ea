// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/block_reader.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "quantization/steps.h"
#include "quantization/trellis.h"
#include "status/macros.h"
#include "tensor/grow.h"

namespace kvcompress::profile {
namespace {

using coding::kMaxLanes;

// Between the symbols of runs, so that those of a token lie in more than one
// set of a cache.
constexpr size_t kBetweenRuns = 64;
// Of runs whose levels are in symbols_.
constexpr size_t kNoLevels = SIZE_MAX;

absl::Status Bad(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("a group's payload has ", what));
}

// The highest bit of each byte that is not 0.
uint64_t NonzeroBytes(uint64_t bytes) {
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
  return (((bytes & kLow) + kLow) | bytes) & ~kLow;
}

int OffsetOf(const BlockCoding& block, size_t token) {
  return block.offsets.empty() ? 0 : block.offsets[token];
}

// The quanta of a token of a run from its symbols.
absl::Status Resolve(const int8_t* symbols, size_t lanes,
                     const coding::LaneCoding& lane_coding,
                     coding::Escapes* escapes, coding::BitReader* low_bits,
                     int32_t* row) {
  for (size_t lane = 0; lane < lanes; ++lane) {
    row[lane] = symbols[lane];
    if (row[lane] == coding::kEscape && !escapes->Next(&row[lane])) {
      return Bad("a bad escape");
    }
  }
  for (uint32_t low = lane_coding.low_lanes; low != 0; low &= low - 1) {
    const int lane = std::countr_zero(low);
    const int count = lane_coding.low_counts[lane];
    const int64_t whole =
        int64_t{row[lane]} * (int64_t{1} << count) + low_bits->Get(count);
    if (std::abs(whole) > coding::kMaxQuantum) {
      return Bad("a quantum out of its range");
    }
    row[lane] = static_cast<int32_t>(whole);
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t BlockReader::Memory(size_t components) {
  constexpr uint64_t kOfRun = kMaxBlockTokens * kMaxLanes;
  // Vectors that grow have up to twice the capacity of what is in them.
  return (components + kMaxLanes - 1) / kMaxLanes *
             (kOfRun * (sizeof(int8_t) + 2 * sizeof(int32_t)) + kBetweenRuns) +
         kMaxBlockTokens * 2 *
             (sizeof(coding::LaneCoding) + sizeof(size_t) +
              sizeof(const uint8_t*)) +
         2 * components * sizeof(Level);
}

absl::Status BlockReader::Read(
    const GroupBlockHeader& header, absl::string_view bytes,
    const BlockCoding& block,
    absl::FunctionRef<absl::Status(uint64_t symbols)> spend) {
  const auto part = [&](size_t size) {
    const absl::string_view taken = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(taken.data()),
                               taken.size());
  };
  const absl::Span<const uint8_t> states = part(kStatesSize);
  coding::RansDecoder decoder(states, part(2 * size_t{header.words}));
  coding::Escapes escapes(part(header.escapes));
  coding::BitReader low_bits(part(bytes.size()));
  if (!decoder.valid()) return Bad("a state out of its range");
  run_size_ = block.tokens * kMaxLanes + kBetweenRuns;
  Grow(header.runs * run_size_, &symbols_);
  levels_.clear();
  // Components behind the last run are zeros, which cost nothing.
  levels_begins_.assign(header.runs, kNoLevels);
  for (size_t run = 0; run < header.runs; ++run) {
    KVC_RETURN_IF_ERROR(spend(block.tokens * kMaxLanes));
    KVC_RETURN_IF_ERROR(
        block.trellis
            ? ReadTrellisRun(run, block, &decoder, &escapes, &low_bits)
            : ReadRun(run, block, &decoder, &escapes, &low_bits));
  }
  if (!decoder.AtEnd() || !escapes.AtEnd() || !low_bits.AtEnd()) {
    return Bad("a block that does not end where its symbols do");
  }
  return absl::OkStatus();
}

// How the tokens of a run are coded. Returns whether one has low bits.
bool BlockReader::SetCodings(size_t begin, size_t lanes,
                             const BlockCoding& block) {
  bool has_low_bits = false;
  codings_.clear();
  coding_of_.resize(block.tokens);
  for (size_t t = 0; t < block.tokens; ++t) {
    const int offset = OffsetOf(block, t);
    if (t == 0 || offset != OffsetOf(block, t - 1)) {
      codings_.emplace_back();
      for (size_t lane = 0; lane < lanes; ++lane) {
        codings_.back().Set(
            lane, coding::SplitClass(ClassAt(block.classes[begin + lane],
                                             block.shift, offset)));
      }
      has_low_bits = has_low_bits || codings_.back().low_lanes != 0;
    }
    coding_of_[t] = codings_.size() - 1;
  }
  tables_.resize(block.tokens);
  for (size_t t = 0; t < block.tokens; ++t) {
    tables_[t] = codings_[coding_of_[t]].tables;
  }
  return has_low_bits;
}

// Reads the symbols of up to kMaxLanes components; to levels_ where they are
// not all of the quanta.
absl::Status BlockReader::ReadRun(size_t run, const BlockCoding& block,
                                  coding::RansDecoder* decoder,
                                  coding::Escapes* escapes,
                                  coding::BitReader* low_bits) {
  const size_t begin = run * kMaxLanes;
  const size_t lanes = std::min(kMaxLanes, block.classes.size() - begin);
  const bool has_low_bits = SetCodings(begin, lanes, block);
  int8_t* const symbols = &symbols_[run * run_size_];
  const size_t count = block.tokens * kMaxLanes;
  if (!decoder->ReadRows(tables_, absl::MakeSpan(symbols, count))) {
    return Bad("a block with too few words");
  }
  if (!has_low_bits &&
      std::memchr(symbols, static_cast<uint8_t>(coding::kEscape), count) ==
          nullptr) {
    return absl::OkStatus();
  }
  levels_begins_[run] = levels_.size();
  levels_.resize(levels_.size() + count);
  int32_t* row = &levels_[levels_begins_[run]];
  for (size_t t = 0; t < block.tokens; ++t, row += kMaxLanes) {
    KVC_RETURN_IF_ERROR(Resolve(symbols + t * kMaxLanes, lanes,
                                codings_[coding_of_[t]], escapes, low_bits,
                                row));
  }
  return absl::OkStatus();
}

// The tables of a token depend on what the one before it had. Levels go to
// symbols_ where all of them fit.
absl::Status BlockReader::ReadTrellisRun(size_t run, const BlockCoding& block,
                                         coding::RansDecoder* decoder,
                                         coding::Escapes* escapes,
                                         coding::BitReader* low_bits) {
  const size_t begin = run * kMaxLanes;
  const size_t lanes = std::min(kMaxLanes, block.classes.size() - begin);
  SetCodings(begin, lanes, block);
  levels_begins_[run] = levels_.size();
  levels_.resize(levels_.size() + block.tokens * kMaxLanes);
  int32_t* row = &levels_[levels_begins_[run]];
  uint8_t tables[kMaxLanes];
  std::fill(tables + lanes, tables + kMaxLanes, coding::kNoTable);
  int8_t symbols[kMaxLanes];
  uint8_t states[kMaxLanes] = {};
  int32_t largest = 0;
  for (size_t t = 0; t < block.tokens; ++t, row += kMaxLanes) {
    const coding::LaneCoding& at = codings_[coding_of_[t]];
    for (size_t lane = 0; lane < lanes; ++lane) {
      tables[lane] = at.Table(lane, coding::IsOddState(states[lane]));
    }
    if (!decoder->ReadRow(tables, absl::MakeSpan(symbols))) {
      return Bad("a block with too few words");
    }
    KVC_RETURN_IF_ERROR(Resolve(symbols, lanes, at, escapes, low_bits, row));
    for (size_t lane = 0; lane < lanes; ++lane) {
      const int32_t quantum = row[lane];
      row[lane] = coding::LevelOf(quantum, coding::IsOddState(states[lane]));
      states[lane] = coding::NextState(states[lane], quantum);
      largest = std::max(largest, std::abs(row[lane]));
    }
  }
  if (largest > std::numeric_limits<int8_t>::max()) return absl::OkStatus();
  const int32_t* const levels = &levels_[levels_begins_[run]];
  std::copy(levels, levels + block.tokens * kMaxLanes,
            &symbols_[run * run_size_]);
  levels_.resize(levels_begins_[run]);
  levels_begins_[run] = kNoLevels;
  return absl::OkStatus();
}

BlockReader::RunLevels BlockReader::LevelsOfRun(size_t run) const {
  if (levels_begins_[run] == kNoLevels) {
    return {.narrow = &symbols_[run * run_size_]};
  }
  return {.wide = &levels_[levels_begins_[run]]};
}

absl::Span<const BlockReader::Level> BlockReader::LevelsOf(size_t token) {
  found_.clear();
  const auto take = [&](size_t component, int32_t value) {
    found_.push_back({static_cast<uint16_t>(component), value});
  };
  for (size_t run = 0; run < levels_begins_.size(); ++run) {
    const size_t begin = run * kMaxLanes;
    if (levels_begins_[run] != kNoLevels) {
      const int32_t* const row =
          &levels_[levels_begins_[run] + token * kMaxLanes];
      for (size_t lane = 0; lane < kMaxLanes; ++lane) {
        if (row[lane] != 0) take(begin + lane, row[lane]);
      }
      continue;
    }
    const int8_t* const row = &symbols_[run * run_size_ + token * kMaxLanes];
    for (size_t lane = 0; lane < kMaxLanes; lane += sizeof(uint64_t)) {
      uint64_t bytes;
      std::memcpy(&bytes, row + lane, sizeof(bytes));
      for (bytes = NonzeroBytes(bytes); bytes != 0; bytes &= bytes - 1) {
        const size_t at =
            lane + static_cast<size_t>(std::countr_zero(bytes)) / 8;
        take(begin + at, row[at]);
      }
    }
  }
  return found_;
}

}  // namespace kvcompress::profile
