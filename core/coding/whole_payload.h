// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A payload of ecsq or klt that is here whole, so that several threads can
// decode parts of it at a time.

#ifndef KVCOMPRESS_CODING_WHOLE_PAYLOAD_H_
#define KVCOMPRESS_CODING_WHOLE_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coding/format.h"
#include "coding/stream_decoder.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/tensor.h"
#include "tensor/workers.h"

namespace kvcompress::coding {

inline absl::Span<const uint8_t> AsBytes(absl::string_view bytes) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()),
                             bytes.size());
}

// Elements of `spec` from `first` on, of a tensor that consists of 8-bit
// integers, to `decoded`. DATA_LOSS for bytes that break the format.
absl::Status DecodeIntegers(const TensorSpec& spec, absl::string_view bytes,
                            uint64_t first, size_t count, uint8_t* decoded);

// DATA_LOSS for a payload of that tensor.
absl::Status DamagedPayload(const TensorSpec& spec, absl::string_view message);
// The same for its block of that index, which begins at `offset`.
absl::Status DamagedBlock(const TensorSpec& spec, const Geometry& geometry,
                          uint64_t index, uint64_t offset,
                          const absl::Status& status);

class WholePayload {
 public:
  // Reads the headers of the tensor and of all blocks. Null where the payload
  // breaks a rule, or has no elements. `spec` and what `payload` refers to
  // outlive this. REQUIRES: the spec has `elements` elements.
  static std::unique_ptr<WholePayload> Read(const TensorSpec& spec,
                                            uint64_t elements,
                                            NewBlockDecoder modes,
                                            absl::string_view payload);

  // Whether it has blocks, and not 8-bit integers.
  bool has_blocks() const { return decoder_ != nullptr; }

  // Decodes all blocks to the tensor at `tensor`. False where one of them
  // breaks a rule, or the checkpoint stops. REQUIRES: has_blocks().
  bool DecodeBlocks(Workers* workers, Checkpoint* checkpoint, uint8_t* tensor);

  // See TensorDecoder.
  size_t Cut(size_t size);
  uint64_t PieceBegin(size_t index) const { return pieces_[index].first; }
  absl::Status DecodePiece(size_t index, std::string* decoded) const;

 private:
  struct BlockOfPayload {
    Block block;
    uint64_t offset = 0;      // of its header
    absl::string_view bytes;  // with its header
    bool anew = false;
    size_t before = 0;  // the last independent one, up to this one
    bool needed_by_others = false;
  };
  struct Piece {
    size_t begin = 0;  // of blocks_ or, where there are none, elements
    size_t end = 0;
    uint64_t first = 0;  // element
  };

  WholePayload(const TensorSpec& spec, uint64_t elements, NewBlockDecoder modes,
               absl::string_view payload);

  bool ReadBlocks();

  const TensorSpec& spec_;
  const uint64_t elements_;
  const NewBlockDecoder modes_;
  const absl::string_view payload_;
  const uint8_t mode_;
  // Of that mode; null for 8-bit integers. Only asked, and decodes nothing.
  const std::unique_ptr<BlockDecoder> decoder_;
  TensorHeader header_;
  std::vector<BlockOfPayload> blocks_;
  std::vector<Piece> pieces_;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_WHOLE_PAYLOAD_H_
