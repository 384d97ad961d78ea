// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/glob.h"

#include <algorithm>
#include <bit>

#include "pipeline/glob_item.h"

namespace kvcompress {
namespace {

using Kind = GlobItem::Kind;

// Patterns are matched together up to so many bits: the table of as many stays
// in a near cache. A longer one has a table of its own.
constexpr size_t kBatchBits = 4096;
constexpr size_t kMaxInRegisters = 8;  // words

// Row i has bit j of column j's word i: transposes 64 words of 64 bits.
void Transpose(uint64_t (&words)[64]) {
  uint64_t mask = 0xffffffff;
  for (size_t width = 32; width != 0; width /= 2, mask ^= mask << width) {
    for (size_t i = 0; i < 64; i = (i + width + 1) & ~width) {
      const uint64_t moved = ((words[i] >> width) ^ words[i + width]) & mask;
      words[i] ^= moved << width;
      words[i + width] ^= moved;
    }
  }
}

bool HasBit(const std::vector<uint64_t>& words, size_t bit) {
  return (words[bit / 64] >> (bit % 64) & 1) != 0;
}

void SetBit(size_t bit, std::vector<uint64_t>* words) {
  (*words)[bit / 64] |= uint64_t{1} << (bit % 64);
}

}  // namespace

// A batch at work. Bit i of a pattern says that what has come of a name may end
// where the pattern has stood for i bytes.
class Globs::Automaton {
 public:
  Automaton(const Batch& batch, absl::Span<const std::string> patterns)
      : words_(WidthFor(batch.words())),
        accepts_(256 * words_),
        begins_(words_),
        stays_(words_),
        ends_(words_),
        reached_(words_),
        // A word of zeros comes before the first.
        state_(1 + words_),
        next_(1 + words_) {
    size_t bit = 0;
    ByteSet sets[64];
    const auto put = [&](const ByteSet& set) {
      sets[bit % 64] = set;
      if (++bit % 64 == 0) Fill(bit / 64 - 1, sets);
    };
    for (const size_t pattern : batch.patterns) {
      SetBit(bit, &begins_);
      put(ByteSet());
      GlobReader reader(patterns[pattern]);
      for (GlobItem item = reader.Next(); item.kind != Kind::kEnd;
           item = reader.Next()) {
        if (item.kind == Kind::kStar) {
          SetBit(bit - 1, &stays_);
          continue;
        }
        if (item.kind == Kind::kLiteral) {
          item.set.Add(static_cast<uint8_t>(item.literal));
        }
        put(item.set);
      }
      SetBit(bit - 1, &ends_);
    }
    if (bit % 64 != 0) {
      std::fill(sets + bit % 64, sets + 64, ByteSet());
      Fill(bit / 64, sets);
    }
  }

  // Whether the name matches one of the patterns.
  bool Match(absl::string_view name) {
    switch (words_) {
      case 1:
        TakeInRegisters<1>(name);
        break;
      case 2:
        TakeInRegisters<2>(name);
        break;
      case 4:
        TakeInRegisters<4>(name);
        break;
      case kMaxInRegisters:
        TakeInRegisters<kMaxInRegisters>(name);
        break;
      default:
        Take(name);
    }
    uint64_t any = 0;
    for (size_t w = 0; w < words_; ++w) {
      const uint64_t ended = state_[1 + w] & ends_[w];
      reached_[w] |= ended;
      any |= ended;
    }
    return any != 0;
  }

  // Whether a name came to the bit at which its pattern ends.
  bool Reached(size_t bit) const { return HasBit(reached_, bit); }

 private:
  void Fill(size_t word, const ByteSet* sets) {
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      uint64_t rows[64];
      for (size_t i = 0; i < 64; ++i) rows[i] = sets[i].word(quarter);
      Transpose(rows);
      for (size_t i = 0; i < 64; ++i) {
        accepts_[(quarter * 64 + i) * words_ + word] = rows[i];
      }
    }
  }

  // Words of the states that take so many: those that fit registers are taken
  // in one of four widths.
  static size_t WidthFor(size_t words) {
    return words <= kMaxInRegisters ? std::bit_ceil(words) : words;
  }

  template <size_t kWords>
  void TakeInRegisters(absl::string_view name) {
    uint64_t state[kWords];
    uint64_t stays[kWords];
    std::copy_n(begins_.begin(), kWords, state);
    std::copy_n(stays_.begin(), kWords, stays);
    for (const char byte : name) {
      const uint64_t* const accepts =
          &accepts_[static_cast<uint8_t>(byte) * kWords];
      uint64_t any = 0;
      for (size_t w = kWords; w-- > 0;) {
        const uint64_t moved =
            state[w] << 1 | (w == 0 ? 0 : state[w - 1] >> 63);
        state[w] = (moved & accepts[w]) | (state[w] & stays[w]);
        any |= state[w];
      }
      if (any == 0) break;
    }
    std::copy_n(state, kWords, state_.begin() + 1);
  }

  void Take(absl::string_view name) {
    std::copy(begins_.begin(), begins_.end(), state_.begin() + 1);
    for (const char byte : name) {
      const uint64_t* const accepts =
          &accepts_[static_cast<uint8_t>(byte) * words_];
      const uint64_t* const state = state_.data();
      uint64_t* const next = next_.data() + 1;
      uint64_t any = 0;
      for (size_t w = 0; w < words_; ++w) {
        const uint64_t moved = state[w + 1] << 1 | state[w] >> 63;
        next[w] = (moved & accepts[w]) | (state[w + 1] & stays_[w]);
        any |= next[w];
      }
      state_.swap(next_);
      if (any == 0) break;
    }
  }

  const size_t words_;
  std::vector<uint64_t> accepts_;  // [256, words]: what moves on by a byte
  std::vector<uint64_t> begins_;
  std::vector<uint64_t> stays_;  // has a `*`
  std::vector<uint64_t> ends_;
  std::vector<uint64_t> reached_;
  std::vector<uint64_t> state_;
  std::vector<uint64_t> next_;
};

Globs::Globs(absl::Span<const std::string> patterns, size_t longest)
    : patterns_(patterns), matched_(patterns.size()) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    std::string literal;
    size_t bytes = 0;
    bool has_wildcard = false;
    GlobReader reader(patterns[i]);
    GlobItem item = reader.Next();
    for (; item.kind != Kind::kEnd && item.kind != Kind::kNever;
         item = reader.Next()) {
      if (item.kind == Kind::kLiteral) literal.push_back(item.literal);
      if (item.kind != Kind::kStar) ++bytes;
      has_wildcard |= item.kind != Kind::kLiteral;
    }
    if (item.kind == Kind::kNever || bytes > longest) continue;
    if (has_wildcard) {
      Add(i, bytes + 1);
    } else {
      exact_[literal].push_back(i);
    }
  }
  for (const Batch& batch : batches_) words_ += batch.words();
}

void Globs::Add(size_t pattern, size_t bits) {
  if (batches_.empty() || batches_.back().bits + bits > kBatchBits) {
    batches_.emplace_back();
  }
  Batch& batch = batches_.back();
  batch.bits += bits;
  batch.patterns.push_back(pattern);
  batch.last_bits.push_back(batch.bits - 1);
}

std::vector<bool> Globs::Match(absl::Span<const absl::string_view> names) {
  std::vector<bool> matches(names.size());
  for (size_t i = 0; i < names.size() && !exact_.empty(); ++i) {
    const auto found = exact_.find(names[i]);
    if (found == exact_.end()) continue;
    matches[i] = true;
    for (const size_t pattern : found->second) matched_[pattern] = true;
    found->second.clear();
  }
  for (const Batch& batch : batches_) {
    Automaton automaton(batch, patterns_);
    for (size_t i = 0; i < names.size(); ++i) {
      if (automaton.Match(names[i])) matches[i] = true;
    }
    for (size_t k = 0; k < batch.patterns.size(); ++k) {
      if (automaton.Reached(batch.last_bits[k])) {
        matched_[batch.patterns[k]] = true;
      }
    }
  }
  return matches;
}

std::optional<size_t> Globs::Unmatched() const {
  const auto first = std::find(matched_.begin(), matched_.end(), false);
  if (first == matched_.end()) return std::nullopt;
  return static_cast<size_t>(first - matched_.begin());
}

}  // namespace kvcompress
