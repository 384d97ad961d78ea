// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/last_stage/zstd_tables.h"

#include <algorithm>
#include <cstdlib>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "codecs/last_stage/backward_bits.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

int Log2(uint32_t value) { return absl::bit_width(value) - 1; }

// A bitstream that is read from its first bit on.
class ForwardBits {
 public:
  explicit ForwardBits(absl::string_view bytes) : bytes_(bytes) {}

  // Zeros follow the last bit. `count` is at most 16.
  uint32_t Peek(int count) const {
    uint32_t word = 0;
    for (size_t i = 0; i < 3; ++i) {
      const size_t at = position_ / 8 + i;
      if (at >= bytes_.size()) break;
      word |= uint32_t{static_cast<uint8_t>(bytes_[at])} << (8 * i);
    }
    return word >> (position_ % 8) & ((1u << count) - 1);
  }
  void Skip(int count) { position_ += static_cast<size_t>(count); }

  // Whole bytes that were begun; more than there are when it was read too far.
  size_t bytes_begun() const { return (position_ + 7) / 8; }
  // What is left of the last of them.
  uint32_t Rest() const {
    return Peek(static_cast<int>(8 * bytes_begun() - position_));
  }

 private:
  const absl::string_view bytes_;
  size_t position_ = 0;
};

}  // namespace

absl::Status FseTable::TakeDescription(int max_accuracy_log, size_t max_symbols,
                                       absl::string_view* bytes) {
  ForwardBits bits(*bytes);
  const int accuracy_log = static_cast<int>(bits.Peek(4)) + 5;
  if (accuracy_log > max_accuracy_log) {
    return absl::DataLossError(absl::StrCat("a table has an accuracy of ",
                                            accuracy_log, " bits, at most ",
                                            max_accuracy_log, " are allowed"));
  }
  bits.Skip(4);
  int16_t probabilities[kMaxSymbols] = {};
  size_t symbols = 0;
  int left = 1 << accuracy_log;
  while (left > 0 && symbols < max_symbols) {
    // One of left + 2 values: the lower ones take a bit less.
    const int width = Log2(static_cast<uint32_t>(left) + 1) + 1;
    const int half = 1 << (width - 1);
    const int shorter = 2 * half - 2 - left;
    int value = static_cast<int>(bits.Peek(width));
    if ((value & (half - 1)) < shorter) {
      value &= half - 1;
      bits.Skip(width - 1);
    } else {
      if (value >= half) value -= shorter;
      bits.Skip(width);
    }
    const int probability = value - 1;
    probabilities[symbols++] = static_cast<int16_t>(probability);
    left -= std::abs(probability);
    if (probability != 0) continue;
    uint32_t more;
    do {
      more = bits.Peek(2);
      bits.Skip(2);
      symbols += more;
    } while (more == 3 && symbols < max_symbols);
  }
  if (bits.bytes_begun() > bytes->size()) {
    return absl::DataLossError("a table is cut short");
  }
  if (left != 0 || symbols > max_symbols) {
    return absl::DataLossError(
        absl::StrCat("the probabilities of a table do not add up to 2^",
                     accuracy_log, " with ", max_symbols, " symbols"));
  }
  if (bits.Rest() != 0) {
    return absl::DataLossError("the bits after a table are not 0");
  }
  bytes->remove_prefix(bits.bytes_begun());
  Build(accuracy_log, absl::MakeSpan(probabilities, symbols));
  return absl::OkStatus();
}

void FseTable::Build(int accuracy_log,
                     absl::Span<const int16_t> probabilities) {
  accuracy_log_ = accuracy_log;
  const uint32_t size = 1u << accuracy_log;
  uint32_t next[kMaxSymbols];
  uint32_t high = size - 1;
  for (size_t s = 0; s < probabilities.size(); ++s) {
    next[s] = static_cast<uint32_t>(std::abs(probabilities[s]));
    if (probabilities[s] == -1) {
      states_[high--].symbol = static_cast<uint8_t>(s);
    }
  }
  const uint32_t step = (size >> 1) + (size >> 3) + 3;
  uint32_t position = 0;
  for (size_t s = 0; s < probabilities.size(); ++s) {
    for (int i = 0; i < probabilities[s]; ++i) {
      states_[position].symbol = static_cast<uint8_t>(s);
      do {
        position = (position + step) & (size - 1);
      } while (position > high);
    }
  }
  for (uint32_t i = 0; i < size; ++i) {
    const uint32_t number = next[states_[i].symbol]++;
    const int bits = accuracy_log - Log2(number);
    states_[i].bits = static_cast<uint8_t>(bits);
    states_[i].base = static_cast<uint16_t>((number << bits) - size);
  }
}

void FseTable::BuildOne(uint8_t symbol) {
  accuracy_log_ = 0;
  states_[0] = {.symbol = symbol, .bits = 0, .base = 0};
}

absl::Status HuffmanLengths::TakeDescription(absl::string_view* bytes) {
  if (bytes->empty()) return absl::DataLossError("the tree is missing");
  const size_t header = static_cast<uint8_t>(bytes->front());
  bytes->remove_prefix(1);
  uint8_t weights[kMaxWeights + 1];
  size_t count = 0;
  const size_t size = header >= 128 ? (header - 126) / 2 : header;
  if (size > bytes->size()) return absl::DataLossError("the tree is cut short");
  absl::string_view description = bytes->substr(0, size);
  bytes->remove_prefix(size);
  if (header >= 128) {
    count = header - 127;
    for (size_t i = 0; i < 2 * size; ++i) {
      const uint8_t byte = static_cast<uint8_t>(description[i / 2]);
      weights[i] = i % 2 == 0 ? byte >> 4 : byte & 15;
    }
    if (count % 2 != 0 && weights[count] != 0) {
      return absl::DataLossError(
          "the unused half of a byte of the tree is not 0");
    }
    return Build(absl::MakeSpan(weights, count));
  }
  FseTable table;
  KVC_RETURN_IF_ERROR(table.TakeDescription(6, kMaxBits + 1, &description));
  BackwardBits bits(description);
  // Two states take turns, until one finds too few bits for its next.
  size_t states[2];
  for (size_t& state : states) state = bits.Read(table.accuracy_log());
  if (bits.left() < 0) {
    return absl::DataLossError("the weights of the tree are cut short");
  }
  while (count < kMaxWeights) {
    size_t& state = states[count % 2];
    const FseTable::State& entry = table[state];
    weights[count++] = entry.symbol;
    if (bits.left() < entry.bits) {
      weights[count] = table[states[count % 2]].symbol;
      if (bits.left() != 0) {
        return absl::DataLossError("the weights of the tree leave bits");
      }
      if (++count > kMaxWeights) break;
      return Build(absl::MakeSpan(weights, count));
    }
    state = entry.base + bits.Read(entry.bits);
  }
  return absl::DataLossError(
      absl::StrCat("the tree has more than ", kMaxWeights, " weights"));
}

absl::Status HuffmanLengths::Build(absl::Span<const uint8_t> weights) {
  const auto no_code = [] {
    return absl::DataLossError(
        absl::StrCat("the weights of the tree do not make a code of at most ",
                     kMaxBits, " bits"));
  };
  uint32_t codes[kMaxBits + 1] = {};
  uint32_t total = 0;
  for (const uint8_t weight : weights) {
    if (weight > kMaxBits) return no_code();
    ++codes[weight];
    if (weight > 0) total += 1u << (weight - 1);
  }
  max_bits_ = absl::bit_width(total);
  if (total == 0 || max_bits_ > kMaxBits) return no_code();
  // The last symbol's weight is what completes a power of two.
  const uint32_t size = 1u << max_bits_;
  const uint32_t rest = size - total;
  if (!absl::has_single_bit(rest)) return no_code();
  ++codes[Log2(rest) + 1];
  if (codes[1] < 2) return no_code();
  uint8_t* at = lengths_;
  for (int weight = 1; weight <= max_bits_; ++weight) {
    const size_t part = size_t{codes[weight]} << (weight - 1);
    std::fill_n(at, part, static_cast<uint8_t>(max_bits_ + 1 - weight));
    at += part;
  }
  for (uint32_t i = 0; i < size; ++i) {
    int bits = lengths_[i];
    int codes = 1;
    while (bits < max_bits_) {
      const int next = lengths_[i << bits & (size - 1)];
      if (bits + next > max_bits_) break;
      bits += next;
      ++codes;
    }
    runs_[i] = static_cast<uint16_t>(bits | codes << 8);
  }
  return absl::OkStatus();
}

// Streams are independent, so that a processor reads several at once.
template <size_t kStreams>
void HuffmanLengths::SkipRuns(BackwardBits* bits, size_t* symbols) const {
  constexpr int kRuns = BackwardBits::kMaxBits / kMaxBits;
  const auto all = [](auto holds) {
    bool result = true;
    for (size_t i = 0; i < kStreams; ++i) result &= holds(i);
    return result;
  };
  while (all([&](size_t i) {
    return bits[i].left() >= 64 && symbols[i] >= size_t{kRuns * kMaxBits};
  })) {
    uint64_t words[kStreams];
    uint32_t skipped[kStreams] = {};
    for (size_t i = 0; i < kStreams; ++i) words[i] = bits[i].Next64();
    for (int run = 0; run < kRuns; ++run) {
      for (size_t i = 0; i < kStreams; ++i) {
        const uint32_t entry = runs_[words[i] >> (64 - max_bits_)];
        words[i] <<= entry & 63;
        skipped[i] += entry;
      }
    }
    for (size_t i = 0; i < kStreams; ++i) {
      bits[i].Skip(static_cast<int>(skipped[i] & 255));
      symbols[i] -= skipped[i] >> 8;
    }
  }
}

bool HuffmanLengths::EndsWith(BackwardBits bits, size_t symbols) const {
  SkipRuns<1>(&bits, &symbols);
  for (; symbols > 0 && bits.left() > 0; --symbols) {
    bits.Skip(lengths_[bits.Peek(max_bits_)]);
  }
  return symbols == 0 && bits.left() == 0;
}

bool HuffmanLengths::IsStream(const Stream& stream) const {
  return EndsWith(BackwardBits(stream.bytes), stream.symbols);
}

bool HuffmanLengths::AreStreams(const Stream (&streams)[4]) const {
  BackwardBits bits[] = {
      BackwardBits(streams[0].bytes), BackwardBits(streams[1].bytes),
      BackwardBits(streams[2].bytes), BackwardBits(streams[3].bytes)};
  size_t symbols[] = {streams[0].symbols, streams[1].symbols,
                      streams[2].symbols, streams[3].symbols};
  SkipRuns<4>(bits, symbols);
  bool end = true;
  for (size_t i = 0; i < 4; ++i) end &= EndsWith(bits[i], symbols[i]);
  return end;
}

}  // namespace kvcompress
