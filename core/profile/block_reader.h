// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A block of a group's payload, decoded to quanta. Specified in core/FORMAT.md,
// "klt-profile". Internal to the library.

#ifndef KVCOMPRESS_PROFILE_BLOCK_READER_H_
#define KVCOMPRESS_PROFILE_BLOCK_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coding/strip.h"
#include "entropy/bits.h"
#include "entropy/escapes.h"
#include "entropy/rans.h"
#include "profile/group_format.h"

namespace kvcompress::profile {

// What a block is read by.
struct BlockCoding {
  absl::Span<const uint8_t> classes;  // of the components
  int shift = 0;                      // of the classes
  bool trellis = false;
  size_t tokens = 0;
  absl::Span<const int8_t> offsets;  // of the tokens; empty: all 0
};

// Reads one block after the other. Not thread safe.
class BlockReader {
 public:
  // What one holds at most for a profile with so many components, in bytes.
  static uint64_t Memory(size_t components);

  // In steps, with a trellis in half steps.
  struct Level {
    uint16_t component = 0;
    int32_t value = 0;
  };

  // Reads what follows the header of a block, which is not trusted: DATA_LOSS.
  // Calls `spend` with the number of symbols before they are read; returns its
  // error when there is one. REQUIRES: the bytes are as many as the header
  // says.
  absl::Status Read(const GroupBlockHeader& header, absl::string_view bytes,
                    const BlockCoding& block,
                    absl::FunctionRef<absl::Status(uint64_t symbols)> spend);

  // The levels of a token of the block that are not 0, by their components;
  // valid until the next call. REQUIRES: Read succeeded.
  absl::Span<const Level> LevelsOf(size_t token);

  // The levels of a run of the block as they lie, [tokens, kMaxLanes], in one
  // of the two; of lanes without a component 0. REQUIRES: Read succeeded.
  struct RunLevels {
    const int8_t* narrow = nullptr;
    const int32_t* wide = nullptr;
  };
  size_t runs() const { return levels_begins_.size(); }
  RunLevels LevelsOfRun(size_t run) const;

 private:
  bool SetCodings(size_t begin, size_t lanes, const BlockCoding& block);
  absl::Status ReadRun(size_t run, const BlockCoding& block,
                       coding::RansDecoder* decoder, coding::Escapes* escapes,
                       coding::BitReader* low_bits);
  absl::Status ReadTrellisRun(size_t run, const BlockCoding& block,
                              coding::RansDecoder* decoder,
                              coding::Escapes* escapes,
                              coding::BitReader* low_bits);

  // Of a run.
  std::vector<coding::LaneCoding> codings_;
  std::vector<size_t> coding_of_;       // index of them, of each token
  std::vector<const uint8_t*> tables_;  // of each token
  // Of a block: of each run, [tokens, kMaxLanes], run_size_ apart.
  std::vector<int8_t> symbols_;
  size_t run_size_ = 0;
  std::vector<size_t> levels_begins_;  // of each run in levels_, or kNoLevels
  std::vector<int32_t> levels_;
  std::vector<Level> found_;  // of a token
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_BLOCK_READER_H_
