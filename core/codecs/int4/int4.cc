// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/int4/int4.h"

#include "codecs/grouped/grouped.h"

namespace kvcompress {

const Codec& Int4Codec() {
  static const auto* const codec = new GroupedCodec(
      {.name = "int4",
       .description = "Symmetric 4-bit integers with one 16-bit scale for each "
                      "group of consecutive elements",
       .bits = 4,
       .rotate = false,
       .kernels = &kernels::KernelSet::int4});
  return *codec;
}

}  // namespace kvcompress
