// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What to do where a codec needs more memory than there is.

#ifndef KVCOMPRESS_LIGHTER_CODECS_H_
#define KVCOMPRESS_LIGHTER_CODECS_H_

#include <string>

#include "kvcompress/codec.h"

namespace kvcompress {

// For people: what a codec takes for each byte of its largest tensor, and which
// codecs take less. Empty for a codec that holds no tensor.
std::string LighterCodecs(const CodecTraits& traits);

}  // namespace kvcompress

#endif  // KVCOMPRESS_LIGHTER_CODECS_H_
