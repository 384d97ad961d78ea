// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `int8:G`: symmetric 8-bit integers with one binary16 scale for G consecutive
// elements, G = 32, 64 or 128.
// Specified in core/FORMAT.md, section 5.

#ifndef KVCOMPRESS_CODECS_INT8_INT8_H_
#define KVCOMPRESS_CODECS_INT8_INT8_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& Int8Codec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_INT8_INT8_H_
