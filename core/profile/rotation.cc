// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/rotation.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernels.h"

namespace kvcompress::profile {

void FillTable(const ProfileRotation& rotation, uint64_t first, size_t tokens,
               std::vector<float>* table) {
  const size_t pairs = rotation.increments.size();
  table->resize(tokens * 2 * pairs);
  kernels::Active().rows.fill_rotation(rotation.increments.data(), pairs, first,
                                       tokens, table->data());
}

void RotateHead(const ProfileRotation& rotation, const float* table,
                size_t tokens, size_t channels, bool back,
                std::vector<float>* pairs, float* values) {
  const size_t turned = 2 * rotation.increments.size();
  const kernels::RotationShape shape = {.tokens = tokens,
                                        .pairs = turned / 2,
                                        .interleaved = rotation.interleaved,
                                        .back = back};
  if (turned == channels) {
    kernels::Active().rows.rotate(table, shape, values);
    return;
  }
  pairs->resize(tokens * turned);
  for (size_t t = 0; t < tokens; ++t) {
    std::copy_n(values + t * channels, turned, &(*pairs)[t * turned]);
  }
  kernels::Active().rows.rotate(table, shape, pairs->data());
  for (size_t t = 0; t < tokens; ++t) {
    std::copy_n(&(*pairs)[t * turned], turned, values + t * channels);
  }
}

}  // namespace kvcompress::profile
