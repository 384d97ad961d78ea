// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The codec `klt`: ecsq in the basis of the tensor's own principal components
// (Karhunen-Loeve transform) over several heads, sent inside the payload as
// integers. Specified in core/FORMAT.md, section 5.
//
// What is here is the transform; the rest is the coding toolkit's. Begin to
// read at coding/block_writer.h, which shows a block; from there
//
//   tensor_encoder.h   analyzes a tensor and searches its step
//   run_bases.h        finds the bases: transform/loadings.h, transform/basis.h
//   block_encoder.h    transforms and rounds a block: rounding.h
//   block_writer.h     codes it
//   block_decoder.h    decodes it: reconstruct.h

#ifndef KVCOMPRESS_CODECS_KLT_KLT_H_
#define KVCOMPRESS_CODECS_KLT_KLT_H_

#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& KltCodec();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_KLT_KLT_H_
