// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The decoding end of ecsq and klt as a stream: collects the bytes of a payload
// into a tensor header, block headers and blocks, or into 8-bit integers. A
// BlockDecoder decodes the blocks of a mode.

#ifndef KVCOMPRESS_CODING_STREAM_DECODER_H_
#define KVCOMPRESS_CODING_STREAM_DECODER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "coding/format.h"
#include "coding/geometry.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress::coding {

// Decodes the blocks of a tensor in one mode, one after the other. Not thread
// safe.
class BlockDecoder {
 public:
  // Whether any of the elements [begin, end) is wanted.
  using IsNeeded = absl::FunctionRef<bool(uint64_t begin, uint64_t end)>;

  BlockDecoder(const TensorSpec& spec, Cut cut)
      : dtype_(spec.dtype), cut_(cut), geometry_(spec, cut) {}
  virtual ~BlockDecoder() = default;

  const Geometry& geometry() const { return geometry_; }
  // Whether the output is that of a part of the heads, complete with its last
  // block; else each block yields the elements that follow.
  bool collects_heads() const { return cut_ == Cut::kAcrossHeads; }

  // Decodes `bytes`, which are not trusted, to elements that `*output` gets:
  // appended or, where it is that of a part of the heads, in their places.
  // Those that are not needed may be anything. DATA_LOSS says which rule of the
  // format is broken. REQUIRES: bytes has the size that its BlockHeader,
  // already accepted, states.
  virtual absl::Status Decode(const TensorHeader& header, const Block& block,
                              absl::Span<const uint8_t> bytes,
                              IsNeeded is_needed, std::string* output) = 0;

  // Whether a block, whose header was accepted, needs nothing of the one before
  // it; any where `bytes` are damaged.
  virtual bool BeginsAnew(const TensorHeader&, const Block&,
                          absl::Span<const uint8_t>) const {
    return true;
  }
  // Like Decode, of a block that is all needed, but writes into the tensor at
  // `tensor`. `before` supplies what TakeForOthers took from an earlier block,
  // and is only read; null for a block that is independent.
  virtual absl::Status DecodeTo(const TensorHeader& header, const Block& block,
                                absl::Span<const uint8_t> bytes,
                                BlockDecoder* before, uint8_t* tensor) = 0;
  // Takes over what blocks need of one that `*other`, of the same mode, has
  // just decoded, and after which they come.
  virtual void TakeForOthers(BlockDecoder*) {}

 protected:
  DType dtype() const { return dtype_; }

 private:
  const DType dtype_;
  const Cut cut_;
  const Geometry geometry_;
};

// Returns the decoder of a mode's blocks, or null for a mode that the codec
// does not have.
using NewBlockDecoder =
    std::unique_ptr<BlockDecoder> (*)(uint8_t mode, const TensorSpec& spec);

// REQUIRES: the spec has `elements` elements of a compressible type.
std::unique_ptr<TensorDecoder> NewStreamDecoder(const TensorSpec& spec,
                                                uint64_t elements,
                                                NewBlockDecoder modes);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_STREAM_DECODER_H_
