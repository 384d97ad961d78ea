// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Shell patterns held against names, in a time that is known beforehand
// whatever they are. Internal to the library.
//
// They mean what fnmatch(3) of POSIX without flags says, byte by byte: `*` is
// any bytes, also `/` and a leading dot, `?` is one; `[...]` is one of a set,
// with ranges, classes such as `[:alpha:]` and `!` or `^` for all others; a
// backslash takes the next byte as it is, and at the end nothing matches it. A
// `[` without its `]` is itself.
//
// Those without wildcards are looked up. The others are automata of one bit for
// each byte they stand for, all of which take a byte of a name at once, 64 in
// an instruction (R. Baeza-Yates and G. Gonnet, "A new approach to text
// searching", CACM 35(10), 1992).

#ifndef KVCOMPRESS_PIPELINE_GLOB_H_
#define KVCOMPRESS_PIPELINE_GLOB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvcompress {

// Patterns. Not thread safe.
class Globs {
 public:
  // For names of at most `longest` bytes. `patterns` must outlive this. Takes
  // time for their bytes.
  Globs(absl::Span<const std::string> patterns, size_t longest);

  // Steps of 64 bits that each byte of a name takes.
  uint64_t words() const { return words_; }

  // For each name whether it matches one of the patterns. REQUIRES: once; no
  // name is longer than was said.
  std::vector<bool> Match(absl::Span<const absl::string_view> names);

  // The first pattern that no name matched.
  std::optional<size_t> Unmatched() const;

 private:
  // Patterns with wildcards whose bits lie one after the other: one for the
  // beginning of each pattern, and one for each byte that it stands for.
  struct Batch {
    std::vector<size_t> patterns;
    std::vector<size_t> last_bits;
    size_t bits = 0;

    size_t words() const { return (bits + 63) / 64; }
  };
  class Automaton;

  void Add(size_t pattern, size_t bits);

  const absl::Span<const std::string> patterns_;
  std::vector<bool> matched_;  // of each pattern
  // Those without wildcards: the patterns of a name, by their numbers.
  std::map<std::string, std::vector<size_t>, std::less<>> exact_;
  std::vector<Batch> batches_;
  uint64_t words_ = 0;  // of all batches
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_GLOB_H_
