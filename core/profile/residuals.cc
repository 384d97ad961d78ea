// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/residuals.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "entropy/bits.h"
#include "entropy/escapes.h"
#include "entropy/rans.h"
#include "profile/residual_grid.h"

namespace kvcompress::profile {
namespace {

using coding::kMaxLanes;

absl::Status Bad(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the residuals of a group's payload have ", what));
}

// The element of an index. False where there is none.
bool TakeRest(const ElementFormat& format, int floor, int32_t index,
              coding::BitReader* low_bits, uint16_t* bits) {
  if (index == 0) {
    const uint32_t magnitude = low_bits->Get(15);
    *bits = static_cast<uint16_t>(magnitude | low_bits->Get(1) << 15);
    return IndexOf(format, floor, *bits) == 0;
  }
  const int one = 1 << format.mantissa;
  int magnitude = std::abs(index);
  if (magnitude >= one) {
    magnitude += (floor - 1) << format.mantissa;
    if (magnitude > kMagnitude) return false;
  } else {
    const int width = std::bit_width(static_cast<unsigned>(magnitude));
    const int shift = std::min(format.mantissa + 1 - width, floor - 1);
    const int significand =
        magnitude << shift | static_cast<int>(low_bits->Get(shift));
    magnitude = ((floor - shift - 1) << format.mantissa) + significand;
  }
  *bits = static_cast<uint16_t>(magnitude | (index < 0 ? 0x8000 : 0));
  return true;
}

}  // namespace

bool TakesResiduals(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}

ResidualShape ResidualShapeOf(const GroupShape& shape,
                              const ProfileGroup& group, size_t member) {
  const ProfileTensor& tensor = group.tensors[member];
  return {.dtype = shape.dtypes[member],
          .batches = shape.batches,
          .heads = tensor.heads,
          .tokens = shape.tokens,
          .channels = tensor.channels};
}

uint64_t Residuals::Memory(const ResidualShape& shape) {
  const uint64_t heads = shape.batches * shape.heads;
  // Levels and the list of blocks may have twice the capacity.
  return shape.heads * shape.channels * (1 + 2 * sizeof(uint16_t)) +
         heads * (shape.blocks_of_head() *
                      (kResidualHeaderSize + 2 * sizeof(Block)) +
                  shape.tokens * shape.channels * kElementSize);
}

absl::StatusOr<Residuals> Residuals::Parse(absl::string_view bytes,
                                           const ResidualShape& shape,
                                           Checkpoint* checkpoint) {
  Residuals found;
  found.shape_ = shape;
  found.bytes_ = std::string(bytes);
  const uint64_t channels = shape.heads * shape.channels;
  if (bytes.size() < sizeof(uint16_t) + channels) return Bad("too few levels");
  uint16_t base;
  std::memcpy(&base, bytes.data(), sizeof(base));
  size_t at = sizeof(base);
  for (uint64_t i = 0; i < channels; ++i, ++at) {
    const int level = base + static_cast<uint8_t>(bytes[at]);
    if (level > std::numeric_limits<uint16_t>::max()) {
      return Bad("a level out of its range");
    }
    found.levels_.push_back(static_cast<uint16_t>(level));
  }
  const uint64_t blocks = shape.blocks_of_head();
  for (uint64_t i = 0; i < shape.batches * shape.heads * blocks; ++i) {
    if (Stops(checkpoint)) return checkpoint->status();
    const uint64_t tokens = std::min(
        shape.block_tokens(), shape.tokens - i % blocks * shape.block_tokens());
    const uint64_t most = tokens * shape.channels * kElementSize;
    if (bytes.size() - at < kResidualHeaderSize) return Bad("too few blocks");
    uint32_t fields[3];
    std::memcpy(fields, bytes.data() + at, sizeof(fields));
    const auto [size, words, escapes] = fields;
    Block block = {.begin = at + kResidualHeaderSize,
                   .size = size - static_cast<uint32_t>(kResidualHeaderSize),
                   .words = words,
                   .escapes = escapes,
                   .raw = words == kRawBlock};
    if (size < kResidualHeaderSize || size > bytes.size() - at) {
      return Bad("a block of a bad size");
    }
    if (block.raw
            ? block.size != most || escapes != 0
            : block.size > most ||
                  block.size < kStatesSize + 2 * uint64_t{words} + escapes) {
      return Bad("a block whose parts do not fit its size");
    }
    at += size;
    found.blocks_.push_back(block);
  }
  if (at != bytes.size()) return Bad("bytes behind their end");
  return found;
}

uint64_t ResidualReader::Memory(uint64_t channels) {
  const uint64_t elements = std::max<uint64_t>(uint64_t{1} << 16, channels);
  // Tables, symbols and indices, and the elements that a member restores.
  return elements * (2 + sizeof(int32_t) + kElementSize +
                     sizeof(uint8_t*) / kMaxLanes) +
         channels * sizeof(ElementGrid);
}

absl::Status ResidualReader::Apply(const Residuals& residuals, uint64_t head,
                                   uint64_t block, uint8_t* elements) {
  const ResidualShape& shape = residuals.shape_;
  const ElementFormat format = FormatOf(shape.dtype);
  const Residuals::Block& at =
      residuals.blocks_[head * shape.blocks_of_head() + block];
  const uint8_t* bytes = ElementsOf(residuals.bytes_) + at.begin;
  if (at.raw) {
    std::memcpy(elements, bytes, at.size);
    return absl::OkStatus();
  }
  const size_t channels = shape.channels;
  const size_t tokens = std::min(shape.block_tokens(),
                                 shape.tokens - block * shape.block_tokens());
  const size_t count = tokens * channels;
  std::vector<ElementGrid> grids(channels);
  for (size_t i = 0; i < channels; ++i) {
    grids[i] =
        GridOf(format, residuals.levels_[head % shape.heads * channels + i]);
  }

  const size_t rows = (count + kMaxLanes - 1) / kMaxLanes;
  tables_.assign(rows * kMaxLanes, coding::kNoTable);
  symbols_.resize(rows * kMaxLanes);
  predicted_.resize(count);
  rows_.resize(rows);
  for (size_t i = 0; i < rows; ++i) rows_[i] = &tables_[i * kMaxLanes];
  for (size_t first = 0; first < count; first += channels) {
    for (size_t i = 0; i < channels; ++i) {
      const uint16_t predicted = ElementAt(elements, first + i);
      tables_[first + i] = TableOf(format, grids[i], predicted);
      predicted_[first + i] = IndexOf(format, grids[i].floor, predicted);
    }
  }

  const auto take = [&bytes](size_t size) {
    const auto taken = absl::MakeConstSpan(bytes, size);
    bytes += size;
    return taken;
  };
  const absl::Span<const uint8_t> states = take(kStatesSize);
  coding::RansDecoder decoder(states, take(2 * size_t{at.words}));
  coding::Escapes escapes(take(at.escapes));
  coding::BitReader low_bits(
      take(at.size - kStatesSize - 2 * size_t{at.words} - at.escapes));
  if (!decoder.valid()) return Bad("a state out of its range");
  if (!decoder.ReadRows(rows_, absl::MakeSpan(symbols_))) {
    return Bad("a block with too few words");
  }
  for (size_t first = 0; first < count; first += channels) {
    for (size_t i = 0; i < channels; ++i) {
      int32_t difference = symbols_[first + i];
      if (difference == coding::kEscape && !escapes.Next(&difference)) {
        return Bad("a bad escape");
      }
      uint16_t bits;
      if (!TakeRest(format, grids[i].floor, predicted_[first + i] + difference,
                    &low_bits, &bits)) {
        return Bad("a difference to no element");
      }
      std::memcpy(elements + (first + i) * kElementSize, &bits, sizeof(bits));
    }
  }
  if (!decoder.AtEnd() || !escapes.AtEnd() || !low_bits.AtEnd()) {
    return Bad("a block that does not end where its symbols do");
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::profile
