// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The codec `klt`: ecsq in the basis of the tensor's own principal components
// (Karhunen-Loeve transform) over several heads, sent inside the payload as
// integers. Specified in core/FORMAT.md, section 5.

#ifndef KVCOMPRESS_CODECS_KLT_KLT_H_
#define KVCOMPRESS_CODECS_KLT_KLT_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& KltCodec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_KLT_KLT_H_
