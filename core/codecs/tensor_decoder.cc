// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/codec.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

// Steps that a decoder may take on what it holds, such as a chunk of a byte
// compressor: each takes a byte of 128 KiB, and a block more than one.
constexpr uint32_t kMaxIdleSteps = 128 << 10;

}  // namespace

absl::StatusOr<bool> TensorDecoder::Decode(absl::string_view* payload,
                                           size_t most, std::string* decoded) {
  const size_t payload_before = payload->size();
  const size_t decoded_before = decoded->size();
  absl::StatusOr<bool> more = DecodeStep(payload, most, decoded);
  if (!more.ok() || !*more) return more;
  const bool moved =
      payload->size() != payload_before || decoded->size() != decoded_before;
  if (moved) {
    idle_steps_ = 0;
    return more;
  }
  const bool has_room =
      decoded->empty() ||
      (most > decoded->size() && most - decoded->size() >= kMaxDecodedBlock);
  if (has_room && ++idle_steps_ > kMaxIdleSteps) {
    return MakeError(absl::StatusCode::kInternal,
                     "the decoder makes no progress", {.reason = "INTERNAL"});
  }
  return more;
}

}  // namespace kvcompress
