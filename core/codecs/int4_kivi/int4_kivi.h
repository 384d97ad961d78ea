// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The codec `int4-kivi`: asymmetric 4-bit integers, keys in groups along the
// tokens of a channel and values in groups along the channels of a token, after
// KIVI (arXiv 2402.02750); the first token exact. Specified in core/FORMAT.md,
// section 5.

#ifndef KVCOMPRESS_CODECS_INT4_KIVI_INT4_KIVI_H_
#define KVCOMPRESS_CODECS_INT4_KIVI_INT4_KIVI_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& Int4KiviCodec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_INT4_KIVI_INT4_KIVI_H_
