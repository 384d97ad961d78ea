// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The entropy tables of a compressed block of Zstandard (RFC 8878, sections
// 4.1 and 4.2), as far as a check of the block needs them. Neither allocates.

#ifndef KVCOMPRESS_CODECS_LAST_STAGE_ZSTD_TABLES_H_
#define KVCOMPRESS_CODECS_LAST_STAGE_ZSTD_TABLES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codecs/last_stage/backward_bits.h"

namespace kvcompress {

// The states of finite state entropy.
class FseTable {
 public:
  struct State {
    uint8_t symbol;
    uint8_t bits;   // that the next state takes
    uint16_t base;  // of the next state
  };

  static constexpr int kMaxAccuracyLog = 9;
  static constexpr size_t kMaxSymbols = 53;

  // Takes a table description from the front of `*bytes`. DATA_LOSS when it
  // breaks a rule, or has a larger accuracy or more symbols than these.
  absl::Status TakeDescription(int max_accuracy_log, size_t max_symbols,
                               absl::string_view* bytes);

  // Probabilities in parts of 2^accuracy_log, which they add up to; -1 is less
  // than one part.
  void Build(int accuracy_log, absl::Span<const int16_t> probabilities);

  // One state, which takes no bits.
  void BuildOne(uint8_t symbol);

  int accuracy_log() const { return accuracy_log_; }
  const State& operator[](size_t state) const { return states_[state]; }

 private:
  int accuracy_log_ = 0;
  State states_[size_t{1} << kMaxAccuracyLog];
};

// The lengths of the codes of literals.
class HuffmanLengths {
 public:
  // Takes a tree description from the front of `*bytes`. DATA_LOSS when it
  // breaks a rule.
  absl::Status TakeDescription(absl::string_view* bytes);

  // Whether `stream` is exactly `symbols` codes, or each of four is.
  // REQUIRES: TakeDescription returned OK.
  struct Stream {
    absl::string_view bytes;
    size_t symbols = 0;
  };
  bool IsStream(const Stream& stream) const;
  bool AreStreams(const Stream (&streams)[4]) const;

 private:
  static constexpr int kMaxBits = 11;
  static constexpr size_t kMaxWeights = 255;

  absl::Status Build(absl::Span<const uint8_t> weights);

  template <size_t kStreams>
  void SkipRuns(BackwardBits* bits, size_t* symbols) const;
  bool EndsWith(BackwardBits bits, size_t symbols) const;

  int max_bits_ = 0;
  // By what the next bits begin with: the bits of the first code; and those of
  // all codes that lie in them as a whole, plus 256 times the number of these.
  uint8_t lengths_[size_t{1} << kMaxBits];
  uint16_t runs_[size_t{1} << kMaxBits];
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_LAST_STAGE_ZSTD_TABLES_H_
