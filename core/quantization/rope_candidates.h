// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rotations that an encoder tries on a tensor.

#ifndef KVCOMPRESS_QUANTIZATION_ROPE_CANDIDATES_H_
#define KVCOMPRESS_QUANTIZATION_ROPE_CANDIDATES_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kvcompress/codec.h"
#include "kvcompress/rope.h"
#include "kvcompress/tensor.h"
#include "quantization/rope.h"

namespace kvcompress::coding {

// What is declared of the rotation of a tensor whose role is, or counts as,
// this: of `hints.rope`, else of `hints.rope_theta`; common bases where neither
// is there. Nothing for a tensor that is not rotated, and of hints.rope only
// what a head of so many channels can have: with channels before the rotated
// ones (MLA) a head is both parts, or one of them alone, whatever the role. The
// rotated part that a layout sets apart has finer steps.
RotationCandidates CandidatesFor(const TensorSpec& spec, TensorRole role,
                                 const EncodeHints& hints, size_t channels);

// Whether a head of so many channels can have an embedding that `rope` gives
// this layer.
bool FitsRope(const RopeParameters& rope, std::optional<uint32_t> layer,
              size_t channels);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_ROPE_CANDIDATES_H_
