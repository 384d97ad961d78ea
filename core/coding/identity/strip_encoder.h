// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Converts the quanta of a block, tile by tile, to the symbols of its strips,
// which stand in another order.

#ifndef KVCOMPRESS_CODING_IDENTITY_STRIP_ENCODER_H_
#define KVCOMPRESS_CODING_IDENTITY_STRIP_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "coding/geometry.h"
#include "coding/identity/runs.h"
#include "coding/strip.h"
#include "entropy/symbol_writer.h"
#include "kernels/rows.h"

namespace kvcompress::coding {

class StripEncoder {
 public:
  // Makes space for the symbols of all strips; `*writer` is not to be used
  // until Finish has returned. `quanta` is to work in, where there are low
  // bits. All must outlive this.
  StripEncoder(const Geometry& geometry, const Block& block,
               absl::Span<const Run> runs, absl::Span<const uint8_t> classes,
               SymbolWriter* writer, std::vector<int32_t>* quanta);

  // Takes the quanta of tokens [begin, end) of a head, which belong to the run
  // with that index. Each head's tokens come in their order.
  void Code(size_t head, size_t run, size_t begin, size_t end,
            const int32_t* quanta);

  // Lists escapes and low bits, in the order of the symbols.
  void Finish();

 private:
  struct Escape {
    size_t token;
    size_t lane;
    int32_t quantum;
  };
  struct StripCodes {
    explicit StripCodes(Strip its_strip) : strip(std::move(its_strip)) {}

    Strip strip;
    std::vector<const LaneCoding*> codings;  // of the runs, in the strip
    uint16_t* codes = nullptr;  // from the first token that has any
    std::vector<Escape> escapes;
  };

  void CodePart(const LaneCoding& coding, size_t lane, size_t begin,
                kernels::MatrixShape shape, const int32_t* quanta,
                StripCodes* strip) const;
  void CodeLowBits(const StripCodes& strip, const LaneCoding& coding,
                   const Run& run);
  // Of the codes of a token.
  size_t Offset(size_t token) const {
    return (token - runs_.front().begin) * kMaxLanes;
  }

  const Block& block_;
  const size_t channels_;  // of a head
  const size_t elements_;
  const absl::Span<const Run> runs_;
  SymbolWriter& writer_;
  // In the order of the tensor; of strips with low bits.
  std::vector<int32_t>& quanta_;
  std::vector<StripCodes> strips_;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_IDENTITY_STRIP_ENCODER_H_
