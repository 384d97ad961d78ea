// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/int8/int8.h"

#include "codecs/grouped/grouped.h"

namespace kvcompress {

const Codec& Int8Codec() {
  static const auto* const codec = new GroupedCodec(
      {.name = "int8",
       .description = "Symmetric 8-bit integers with one 16-bit scale for each "
                      "group of consecutive elements",
       .bits = 8,
       .rotate = false,
       .kernels = &kernels::KernelSet::int8});
  return *codec;
}

}  // namespace kvcompress
