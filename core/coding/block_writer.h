// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Writes a block, whatever transform it has:
//
//   header | counts | states | words | escapes | sinks | exceptions | low bits
//
// Symbols of classes, means and norms come first in the words, then what a
// transform has of its own, then the quanta. Specified in core/FORMAT.md,
// "ecsq" and "klt".

#ifndef KVCOMPRESS_CODING_BLOCK_WRITER_H_
#define KVCOMPRESS_CODING_BLOCK_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coding/block_content.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "entropy/symbol_writer.h"

namespace kvcompress::coding {

class BlockWriter {
 public:
  // What `symbols` has is lost. All must outlive this.
  BlockWriter(const TensorHeader& header, const Geometry& geometry,
              const Block& block, std::vector<uint16_t>* symbols);

  // Codes classes, means and norms.
  void PutSideData(const BlockContent& content);
  // Codes values, less `middle` and without their `shift` lowest bits, under
  // the table that suits them best; returns the table.
  uint8_t PutSymbols(std::vector<int32_t> values, int32_t middle, int shift);

  // For what a transform has of its own.
  BlockHeader& header() { return sizes_; }
  SymbolWriter& symbols() { return symbols_; }
  size_t lanes() const { return lanes_; }

  // Appends the block to `*payload`. `counts` goes behind the header; what
  // `words` has is lost. False when the block is larger than one may be.
  bool Finish(absl::string_view counts, const BlockContent& content,
              absl::string_view exceptions, std::vector<uint16_t>* words,
              std::string* payload);

 private:
  const TensorHeader& header_;
  const size_t elements_;
  const size_t lanes_;
  BlockHeader sizes_;
  SymbolWriter symbols_;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_BLOCK_WRITER_H_
