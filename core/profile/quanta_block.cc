// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/quanta_block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "entropy/rans.h"

namespace kvcompress::profile {
namespace {

// Quanta whose magnitudes have this sum fit 16 bits, and times 32767 they fit
// 31.
constexpr int64_t kMaxNarrow = 32767;
// The same for two bytes, both signed: 127 * 256 + 127.
constexpr uint32_t kMaxInTiles = 32639;
// A product with all rows of a matrix takes as long as sums of the rows that a
// token needs where these are such a part, measured with AVX-512 on 1024 and
// 3840 rows: 0.46 to 0.7.
constexpr double kDense = 0.6;
// Components that are taken into the former at once.
constexpr size_t kDenseStep = 32;

}  // namespace

int32_t TokenQuanta::quantum(size_t k) const {
  if (narrow_) return quanta_[k];
  int32_t quantum;
  std::memcpy(&quantum, quanta_ + 2 * k, sizeof(quantum));
  return quantum;
}

void QuantaBlock::Append(absl::Span<const BlockReader::Level> levels) {
  int64_t sum = 0;
  for (const BlockReader::Level& each : levels) sum += std::abs(each.value);
  if (!levels.empty()) {
    components_end_ =
        std::max<size_t>(components_end_, levels.back().component + 1u);
  }
  Append(levels, sum <= kMaxNarrow);
}

void QuantaBlock::Append(absl::Span<const BlockReader::Level> levels,
                         bool narrow) {
  const size_t padded = (levels.size() + kernels::kRowsAtOnce - 1) /
                        kernels::kRowsAtOnce * kernels::kRowsAtOnce;
  const size_t first = components_.size();
  const size_t begin = quanta_.size();
  components_.resize(first + padded);
  quanta_.resize(begin + (narrow ? padded : 2 * padded));
  for (size_t k = 0; k < levels.size(); ++k) {
    components_[first + k] = levels[k].component;
    if (narrow) {
      quanta_[begin + k] = static_cast<int16_t>(levels[k].value);
    } else {
      std::memcpy(&quanta_[begin + 2 * k], &levels[k].value, sizeof(int32_t));
    }
  }
  places_.push_back({components_.size(), quanta_.size()});
  narrow_.push_back(narrow);
}

TokenQuanta QuantaBlock::At(size_t token) const {
  const Place& place = places_[token];
  const size_t count = places_[token + 1].component - place.component;
  return {absl::MakeConstSpan(components_).subspan(place.component, count),
          quanta_.data() + place.quantum, narrow_[token]};
}

size_t QuantaBlock::DenseComponents(size_t components) const {
  std::vector<int64_t> counts(components / kDenseStep);
  for (size_t t = 0; t < tokens(); ++t) {
    const TokenQuanta token = At(t);
    for (size_t k = 0; token.narrow() && k < token.size(); ++k) {
      const size_t step = token.component(k) / kDenseStep;
      if (step < counts.size() && token.quantum(k) != 0) ++counts[step];
    }
  }
  const auto least =
      static_cast<int64_t>(kDense * static_cast<double>(tokens() * kDenseStep));
  int64_t gain = 0;
  int64_t most = 0;
  size_t best = 0;
  for (size_t step = 0; step < counts.size(); ++step) {
    gain += counts[step] - least;
    if (gain <= most) continue;
    most = gain;
    best = step + 1;
  }
  return best * kDenseStep;
}

void QuantaBlock::MakeDense(size_t components) {
  const size_t inner = DenseComponents(components);
  if (inner == 0) return;
  QuantaBlock made;
  made.inner_ = inner;
  made.dense_.resize(tokens() * inner);
  std::vector<BlockReader::Level> others;
  for (size_t t = 0; t < tokens(); ++t) {
    const TokenQuanta token = At(t);
    others.clear();
    for (size_t k = 0; k < token.size(); ++k) {
      const uint16_t component = token.component(k);
      const int32_t quantum = token.quantum(k);
      if (quantum == 0) continue;
      if (token.narrow() && component < inner) {
        made.dense_[t * inner + component] = static_cast<int16_t>(quantum);
      } else {
        others.push_back({component, quantum});
      }
    }
    made.Append(others, token.narrow());
  }
  made.components_end_ = components_end_;
  *this = std::move(made);
}

void QuantaBlock::Tiles::Resize(size_t row_tiles, size_t inner_tiles) {
  inner_ = inner_tiles;
  tiles_.assign(row_tiles * inner_tiles * kernels::kTileBytes / sizeof(int16_t),
                0);
  masks_.assign(row_tiles, Mask());
}

int8_t* QuantaBlock::Tiles::At(size_t token, size_t run) {
  const size_t place = run * kernels::kTileSymbols;
  const size_t tile =
      token / kernels::kTileRows * inner_ + place / kernels::kTileInner;
  return tiles() + tile * kernels::kTileBytes +
         token % kernels::kTileRows * kernels::kTileInner +
         place % kernels::kTileInner;
}

void QuantaBlock::Tiles::Use(size_t token, size_t run) {
  const size_t tile = run * kernels::kTileSymbols / kernels::kTileInner;
  masks_[token / kernels::kTileRows].words[tile / 64] |= uint64_t{1}
                                                         << (tile % 64);
}

void QuantaBlock::Tiles::Clear(size_t token) {
  const size_t runs = inner_ * kernels::kTileInner / kernels::kTileSymbols;
  for (size_t run = 0; run < runs; ++run) {
    std::fill_n(At(token, run), kernels::kTileSymbols, int8_t{0});
  }
}

void QuantaBlock::TakeWide(const int32_t* levels, size_t tokens, size_t run,
                           uint32_t* sums, uint8_t* any) {
  constexpr uint64_t kMost = uint64_t{1} << 31;
  const bool has_high =
      run * kernels::kTileSymbols < high_.inner() * kernels::kTileInner;
  for (size_t t = 0; t < tokens; ++t, levels += kernels::kTileSymbols) {
    int8_t* const low = low_.At(t, run);
    int8_t* const high = has_high ? high_.At(t, run) : nullptr;
    uint64_t sum = sums[t];
    bool any_low = false;
    bool any_high = false;
    for (size_t i = 0; i < kernels::kTileSymbols; ++i) {
      const int64_t level = levels[i];
      sum += static_cast<uint64_t>(std::abs(level));
      any[i] |= level != 0;
      low[i] = static_cast<int8_t>(level & 0xff);
      any_low |= low[i] != 0;
      if (!has_high) continue;
      high[i] = static_cast<int8_t>((level - low[i]) >> 8);
      any_high |= high[i] != 0;
    }
    sums[t] = static_cast<uint32_t>(std::min(sum, kMost));
    if (any_low) low_.Use(t, run);
    if (any_high) high_.Use(t, run);
  }
}

void QuantaBlock::TakeTiles(const kernels::TileKernels& kernels,
                            BlockReader* reader, size_t tokens) {
  using kernels::kTileInner;
  using kernels::kTileSymbols;
  static_assert(coding::kMaxLanes == kTileSymbols);
  const auto in_tiles = [](size_t count, size_t tile) {
    return (count + tile - 1) / tile;
  };
  const size_t row_tiles = in_tiles(tokens, kernels::kTileRows);
  low_.Resize(row_tiles, in_tiles(reader->runs() * kTileSymbols, kTileInner));
  // Of runs with levels that are no bytes there are tiles of high bytes too.
  size_t high_runs = 0;
  for (size_t run = 0; run < reader->runs(); ++run) {
    const int32_t* const wide = reader->LevelsOfRun(run).wide;
    const auto is_byte = [](int32_t level) {
      return level == static_cast<int8_t>(level);
    };
    if (wide != nullptr &&
        !std::all_of(wide, wide + tokens * kTileSymbols, is_byte)) {
      high_runs = run + 1;
    }
  }
  if (high_runs > 0) {
    high_.Resize(row_tiles, in_tiles(high_runs * kTileSymbols, kTileInner));
  }
  std::vector<uint32_t> sums(tokens);
  for (size_t run = 0; run < reader->runs(); ++run) {
    const BlockReader::RunLevels levels = reader->LevelsOfRun(run);
    uint8_t any[kTileSymbols] = {};
    if (levels.narrow != nullptr) {
      kernels.take_symbols(levels.narrow, tokens, run * kTileSymbols,
                           low_.inner(), low_.tiles(), low_.masks(),
                           sums.data(), any);
    } else {
      TakeWide(levels.wide, tokens, run, sums.data(), any);
    }
    for (size_t i = 0; i < kTileSymbols; ++i) {
      if (any[i] != 0) components_end_ = run * kTileSymbols + i + 1;
    }
  }
  for (size_t t = 0; t < tokens; ++t) {
    const bool narrow = sums[t] <= kMaxInTiles;
    Append(
        narrow ? absl::Span<const BlockReader::Level>() : reader->LevelsOf(t),
        narrow);
    if (narrow) continue;
    all_narrow_ = false;
    low_.Clear(t);
    high_.Clear(t);
  }
}

}  // namespace kvcompress::profile
