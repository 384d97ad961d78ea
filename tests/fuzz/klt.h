// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tensors that are long enough for the principal components of klt, which those
// of DrawSpec are not.

#ifndef KVCOMPRESS_TESTS_FUZZ_KLT_H_
#define KVCOMPRESS_TESTS_FUZZ_KLT_H_

#include <cstdint>
#include <iterator>

#include "input.h"
#include "kvcompress/codec.h"

namespace kvcompress::fuzz {

inline CodecSpec DrawKlt(Input* input) {
  constexpr const char* kPresets[] = {"contract", "high",       "max",
                                      "ultra",    "0.05,8,128", "2,2,1"};
  const absl::StatusOr<CodecSpec> spec = ParseCodec(
      CodecString("klt", kPresets[input->UpTo(std::size(kPresets) - 1)]));
  Require(spec.ok(), "a preset of klt resolves");
  return *spec;
}

// 128 to 383 tokens of 1 to 4 heads of 1 to 32 channels, or of one head of more
// than 256.
inline TensorSpec DrawKltSpec(Input* input) {
  constexpr uint64_t kWide[] = {257, 320, 512, 576};
  TensorSpec spec = DrawSpec(input);
  const uint64_t heads = 1 + input->UpTo(3);
  const uint64_t tokens = 128 + input->UpTo(255);
  const size_t width = input->UpTo(31 + std::size(kWide));
  if (width < 32) {
    spec.shape = {1, heads, tokens, 1 + width};
  } else {
    spec.shape = {1, 1, tokens, kWide[width - 32]};
  }
  return spec;
}

}  // namespace kvcompress::fuzz

#endif  // KVCOMPRESS_TESTS_FUZZ_KLT_H_
