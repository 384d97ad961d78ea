// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/int4_hadamard/int4_hadamard.h"

#include "codecs/grouped/grouped.h"

namespace kvcompress {

const Codec& Int4HadamardCodec() {
  static const auto* const codec = new GroupedCodec(
      {.name = "int4-hadamard",
       .description = "int4 after a signed Hadamard rotation along head_dim, "
                      "which spreads outliers over their token",
       .bits = 4,
       .rotate = true,
       .kernels = &kernels::KernelSet::int4});
  return *codec;
}

}  // namespace kvcompress
