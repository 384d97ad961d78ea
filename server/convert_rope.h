// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Rotary embeddings between the API's messages and the core's types.

#ifndef KVCOMPRESS_SERVER_CONVERT_ROPE_H_
#define KVCOMPRESS_SERVER_CONVERT_ROPE_H_

#include "kvcompress/rope.h"
#include "kvcompress/v1/rope.pb.h"

namespace kvcompress {

// Checks nothing: see ValidateRope.
RopeParameters FromProto(const v1::RopeParameters& proto);

v1::RopeFinding ToProto(const RopeFinding& finding);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CONVERT_ROPE_H_
