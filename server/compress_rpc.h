// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Compress and Measure.

#ifndef KVCOMPRESS_SERVER_COMPRESS_RPC_H_
#define KVCOMPRESS_SERVER_COMPRESS_RPC_H_

#include <grpcpp/grpcpp.h>

#include "kvcompress/v1/compression_service.pb.h"
#include "service_state.h"

namespace kvcompress {

// Each returns a reactor that deletes itself.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewCompress(
    grpc::CallbackServerContext* context, ServiceState* state);

grpc::ServerReadReactor<v1::MeasureRequest>* NewMeasure(
    grpc::CallbackServerContext* context, v1::MeasureResponse* response,
    ServiceState* state);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_COMPRESS_RPC_H_
