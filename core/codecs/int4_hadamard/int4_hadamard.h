// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `int4-hadamard:G`: `int4:G` after a signed Hadamard rotation along the last
// dimension, which spreads the outliers of a token over all its channels
// (QuaRot, arXiv 2404.00456).
// Specified in core/FORMAT.md, section 5.

#ifndef KVCOMPRESS_CODECS_INT4_HADAMARD_INT4_HADAMARD_H_
#define KVCOMPRESS_CODECS_INT4_HADAMARD_INT4_HADAMARD_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& Int4HadamardCodec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_INT4_HADAMARD_INT4_HADAMARD_H_
