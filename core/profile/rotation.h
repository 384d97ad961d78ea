// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rotary embeddings of a profile, on rows of values. Internal to the
// library.

#ifndef KVCOMPRESS_PROFILE_ROTATION_H_
#define KVCOMPRESS_PROFILE_ROTATION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvcompress/profile.h"

namespace kvcompress::profile {

// The cosines and sines of tokens from the position `first` on.
void FillTable(const ProfileRotation& rotation, uint64_t first, size_t tokens,
               std::vector<float>* table);

// Rotates rows [tokens, channels] of a head in place; inversely if `back`.
// `*pairs` is scratch.
void RotateHead(const ProfileRotation& rotation, const float* table,
                size_t tokens, size_t channels, bool back,
                std::vector<float>* pairs, float* values);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_ROTATION_H_
