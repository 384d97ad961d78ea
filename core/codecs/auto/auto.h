// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `auto`: encodes a tensor with every codec that offers itself, and keeps the
// smallest payload whose measured quality holds the thresholds; ties go to the
// codec that is listed first. A codec that refuses the tensor's values is out.
// They are tried from the last of the list on, as those squeeze most: one whose
// payload is known to be larger than the best so far, or grows beyond it, is
// not tried, or not to its end. Where an earlier tensor of the kind is known,
// only those are tried that are likely to be kept by what it found, but for
// Effort::kBest. Of a long tensor without an earlier one, a sample stands for
// that. The manifest records the codec that was chosen,
// never `auto`, so there is nothing to decode.
//
// Holds a whole tensor, and the output of two candidates at a time.

#ifndef KVCOMPRESS_CODECS_AUTO_AUTO_H_
#define KVCOMPRESS_CODECS_AUTO_AUTO_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& AutoCodec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_AUTO_AUTO_H_
