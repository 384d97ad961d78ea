// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `lossless`: every bit as it was, NaN and infinity included, with exponents
// entropy coded. Specified in core/FORMAT.md, section 5.
//
// Its metrics are those of an exact copy. Every element is counted; NaN and
// infinity are left out of the sums behind the metrics, so that none of them
// becomes NaN.

#ifndef KVCOMPRESS_CODECS_LOSSLESS_LOSSLESS_H_
#define KVCOMPRESS_CODECS_LOSSLESS_LOSSLESS_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& LosslessCodec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_LOSSLESS_LOSSLESS_H_
