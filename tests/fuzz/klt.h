// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tensors that are long enough for the principal directions of klt, which those
// of DrawSpec are not.

#ifndef KVCOMPRESS_TESTS_FUZZ_KLT_H_
#define KVCOMPRESS_TESTS_FUZZ_KLT_H_

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

// 128 to 383 tokens of 1 to 4 heads of 1 to 32 channels.
inline TensorSpec DrawKltSpec(Input* input) {
  TensorSpec spec = DrawSpec(input);
  spec.shape = {1, 1 + input->UpTo(3), 128 + input->UpTo(255),
                1 + input->UpTo(31)};
  return spec;
}

}  // namespace kvcompress::fuzz

#endif  // KVCOMPRESS_TESTS_FUZZ_KLT_H_
