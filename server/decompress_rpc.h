// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decompress.

#ifndef KVCOMPRESS_SERVER_DECOMPRESS_RPC_H_
#define KVCOMPRESS_SERVER_DECOMPRESS_RPC_H_

#include <grpcpp/grpcpp.h>

#include "kvcompress/v1/compression_service.pb.h"
#include "service_state.h"

namespace kvcompress {

// Returns a reactor that deletes itself.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewDecompress(
    grpc::CallbackServerContext* context, ServiceState* state);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_DECOMPRESS_RPC_H_
