// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The codec `sparse`: the values of largest magnitude as `int4`, a bitmap that
// says which they are, zeros for the others. Specified in core/FORMAT.md,
// section 5.

#ifndef KVCOMPRESS_CODECS_SPARSE_SPARSE_H_
#define KVCOMPRESS_CODECS_SPARSE_SPARSE_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& SparseCodec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_SPARSE_SPARSE_H_
