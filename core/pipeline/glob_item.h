// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Reads shell patterns; see glob.h. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_GLOB_ITEM_H_
#define KVCOMPRESS_PIPELINE_GLOB_ITEM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvcompress {

// A set of bytes.
class ByteSet {
 public:
  void Add(uint8_t byte) { words_[byte / 64] |= uint64_t{1} << (byte % 64); }
  // Nothing when `last` comes before `first`.
  void AddRange(uint8_t first, uint8_t last) {
    for (int byte = first; byte <= last; ++byte) {
      Add(static_cast<uint8_t>(byte));
    }
  }
  void Invert() {
    for (uint64_t& word : words_) word = ~word;
  }
  // Of the bytes 64 * index on.
  uint64_t word(size_t index) const { return words_[index]; }

 private:
  std::array<uint64_t, 4> words_ = {};
};

// What a pattern is made of.
struct GlobItem {
  enum class Kind : uint8_t {
    kEnd,
    kLiteral,  // `literal`
    kStar,     // any bytes
    kSet,      // one of `set`
    kNever,    // the pattern matches nothing
  };
  Kind kind = Kind::kEnd;
  char literal = 0;
  ByteSet set;
};

// Reads the items of a pattern, which must outlive it, in a time that goes with
// its length.
class GlobReader {
 public:
  explicit GlobReader(absl::string_view pattern) : pattern_(pattern) {}

  GlobItem Next();

 private:
  enum class Bracket : uint8_t { kClosed, kUnclosed, kNever };

  // Reads on behind a `[`. Where it is closed, goes on behind it.
  Bracket ReadBracket(ByteSet* set);
  // Reads a class, `[:name:]` or `[=a=]`, at `*at` and goes on behind it. False
  // when no such thing is there; nothing when it has a name that none has.
  std::optional<bool> ReadClass(size_t* at, ByteSet* set) const;
  // The byte at a position, 0 behind the end.
  char At(size_t position) const {
    return position < pattern_.size() ? pattern_[position] : '\0';
  }

  const absl::string_view pattern_;
  size_t position_ = 0;
  // Whether a bracket that goes on at a position is known to have no end.
  std::vector<bool> endless_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_GLOB_ITEM_H_
