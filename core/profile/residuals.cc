// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/residuals.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "entropy/bits.h"
#include "entropy/escapes.h"
#include "entropy/rans.h"
#include "entropy/symbol_writer.h"
#include "entropy/tables.h"
#include "kernels/elements.h"

namespace kvcompress::profile {
namespace {

using coding::kMaxLanes;

constexpr size_t kElementSize = sizeof(uint16_t);
constexpr size_t kBlockHeaderSize = 12;
// In the place of the number of words: the block has elements as they are.
constexpr uint32_t kRaw = std::numeric_limits<uint32_t>::max();
constexpr uint16_t kMagnitude = 0x7fff;
// The level of a standard deviation of 1; a level is a quarter of an octave.
constexpr int kLevelOfOne = 1024;
constexpr int kMostLevels = std::numeric_limits<uint8_t>::max();
// The class of a standard deviation of one step of the grid.
constexpr int kClassOfOne = 15;
// A step of the grid is so many octaves below the standard deviation, or up to
// one octave more.
constexpr int kFinerOctaves = 2;
// The standard deviation over the median magnitude, of a normal distribution.
constexpr float kSpread = 1.4826f;
// Tokens that the errors of a channel are taken from, at most.
constexpr uint64_t kSampled = 4096;

// A floating-point type of 16 bits.
struct Format {
  int mantissa;  // bits
  int bias;
  int largest_floor;  // exponent field
};

Format FormatOf(DType dtype) {
  return dtype == DType::kBF16 ? Format{7, 127, 254} : Format{10, 15, 30};
}

// Elements as integers: those with an exponent field of at least `floor` in
// their order, others in steps of those at the floor, towards 0.
struct Grid {
  int floor;
  int klass;  // of differences from an element at the floor or below
};

Grid GridOf(const Format& format, int level) {
  const int quarters = level - kLevelOfOne;
  const int octaves = quarters >> 2;
  const int unit = format.bias + format.mantissa;
  Grid grid;
  grid.floor =
      std::clamp(octaves - kFinerOctaves + unit, 1, format.largest_floor);
  grid.klass = kClassOfOne + quarters - 4 * (grid.floor - unit);
  return grid;
}

// Of which only the bits of the mantissa count below the floor.
int ShiftAt(int exponent, int floor) { return floor - std::max(exponent, 1); }

int SignificandOf(const Format& format, int magnitude) {
  const int exponent = magnitude >> format.mantissa;
  return magnitude - (std::max(exponent - 1, 0) << format.mantissa);
}

int32_t IndexOf(const Format& format, int floor, uint16_t bits) {
  const int magnitude = bits & kMagnitude;
  const int exponent = magnitude >> format.mantissa;
  int index;
  if (exponent >= floor) {
    index = magnitude - ((floor - 1) << format.mantissa);
  } else {
    const int shift = ShiftAt(exponent, floor);
    index =
        shift > format.mantissa ? 0 : SignificandOf(format, magnitude) >> shift;
  }
  return bits > kMagnitude ? -index : index;
}

uint8_t TableOf(const Format& format, const Grid& grid, uint16_t predicted) {
  const int exponent = (predicted & kMagnitude) >> format.mantissa;
  const int klass = grid.klass - 4 * std::max(exponent - grid.floor, 0);
  return static_cast<uint8_t>(std::clamp<int>(klass, 0, coding::kTables - 1));
}

uint16_t ElementAt(const uint8_t* elements, size_t index) {
  uint16_t bits;
  std::memcpy(&bits, elements + index * kElementSize, sizeof(bits));
  return bits;
}

const uint8_t* Data(absl::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

absl::Status Bad(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the residuals of a group's payload have ", what));
}

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Sends what the index of an element does not say of it.
void PutRest(const Format& format, int floor, int32_t index, uint16_t bits,
             coding::SymbolWriter* writer) {
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

// The element of an index. False where there is none.
bool TakeRest(const Format& format, int floor, int32_t index,
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

class Encoder {
 public:
  Encoder(const ResidualShape& shape, absl::string_view source,
          absl::string_view restored)
      : shape_(shape),
        format_(FormatOf(shape.dtype)),
        source_(Data(source)),
        restored_(Data(restored)) {}

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
    std::vector<Grid> grids(channels);
    for (size_t i = 0; i < channels; ++i) {
      grids[i] = GridOf(format_, levels_[head % shape_.heads * channels + i]);
    }
    coding::SymbolWriter writer(&symbols_);
    const size_t rows = (elements + kMaxLanes - 1) / kMaxLanes;
    uint16_t* const symbols = writer.AddRows(rows, kMaxLanes).data();
    std::fill(symbols + elements, symbols + rows * kMaxLanes,
              coding::kNoSymbol);
    for (size_t i = 0; i < elements; ++i) {
      const Grid& grid = grids[i % channels];
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
    const size_t size = kBlockHeaderSize + kStatesSize +
                        2 * stream.words.size() + writer.escapes().size() +
                        writer.low_bits().size();
    const size_t raw = kBlockHeaderSize + elements * kElementSize;
    if (size >= raw) {
      Put(static_cast<uint32_t>(raw), out);
      Put(kRaw, out);
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
  const Format format_;
  const uint8_t* const source_;
  const uint8_t* const restored_;
  std::vector<int> levels_;
  std::vector<uint16_t> symbols_;
  std::vector<uint16_t> words_;
};

}  // namespace

bool TakesResiduals(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}

std::string FiniteElements(DType dtype, absl::string_view source) {
  std::string finite(source);
  const int last = FormatOf(dtype).largest_floor;
  for (size_t i = 0; i < finite.size() / kElementSize; ++i) {
    const int exponent =
        (ElementAt(Data(finite), i) & kMagnitude) >> FormatOf(dtype).mantissa;
    if (exponent > last)
      std::memset(&finite[i * kElementSize], 0, kElementSize);
  }
  return finite;
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

std::string EncodeResiduals(const ResidualShape& shape,
                            absl::string_view source,
                            absl::string_view restored,
                            Checkpoint* checkpoint) {
  return Encoder(shape, source, restored).Encode(checkpoint);
}

uint64_t Residuals::Memory(const ResidualShape& shape) {
  const uint64_t heads = shape.batches * shape.heads;
  // Levels and the list of blocks may have twice the capacity.
  return shape.heads * shape.channels * (1 + 2 * sizeof(uint16_t)) +
         heads *
             (shape.blocks_of_head() * (kBlockHeaderSize + 2 * sizeof(Block)) +
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
    if (bytes.size() - at < kBlockHeaderSize) return Bad("too few blocks");
    uint32_t fields[3];
    std::memcpy(fields, bytes.data() + at, sizeof(fields));
    const auto [size, words, escapes] = fields;
    Block block = {.begin = at + kBlockHeaderSize,
                   .size = size - static_cast<uint32_t>(kBlockHeaderSize),
                   .words = words,
                   .escapes = escapes,
                   .raw = words == kRaw};
    if (size < kBlockHeaderSize || size > bytes.size() - at) {
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
         channels * sizeof(Grid);
}

absl::Status ResidualReader::Apply(const Residuals& residuals, uint64_t head,
                                   uint64_t block, uint8_t* elements) {
  const ResidualShape& shape = residuals.shape_;
  const Format format = FormatOf(shape.dtype);
  const Residuals::Block& at =
      residuals.blocks_[head * shape.blocks_of_head() + block];
  const uint8_t* bytes = Data(residuals.bytes_) + at.begin;
  if (at.raw) {
    std::memcpy(elements, bytes, at.size);
    return absl::OkStatus();
  }
  const size_t channels = shape.channels;
  const size_t tokens = std::min(shape.block_tokens(),
                                 shape.tokens - block * shape.block_tokens());
  const size_t count = tokens * channels;
  std::vector<Grid> grids(channels);
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
