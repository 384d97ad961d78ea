// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Compress and Measure.

#ifndef KVCOMPRESS_SERVER_COMPRESS_RPC_H_
#define KVCOMPRESS_SERVER_COMPRESS_RPC_H_

#include <grpcpp/grpcpp.h>

#include "service_state.h"
#include "small_call.h"

namespace kvcompress {

// Each returns a reactor that deletes itself. Throws std::bad_alloc.
RawReactor* NewCompress(grpc::CallbackServerContext* context,
                        ServiceState* state);

RawReactor* NewMeasure(grpc::CallbackServerContext* context,
                       ServiceState* state);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_COMPRESS_RPC_H_
