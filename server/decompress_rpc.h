// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decompress.

#ifndef KVCOMPRESS_SERVER_DECOMPRESS_RPC_H_
#define KVCOMPRESS_SERVER_DECOMPRESS_RPC_H_

#include <grpcpp/grpcpp.h>

#include "service_state.h"
#include "small_call.h"

namespace kvcompress {

// Returns a reactor that deletes itself.
RawReactor* NewDecompress(grpc::CallbackServerContext* context,
                          ServiceState* state);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_DECOMPRESS_RPC_H_
