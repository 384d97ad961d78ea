// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The calls CompressFile and DecompressFile.

#ifndef KVCOMPRESS_SERVER_FILE_RPC_H_
#define KVCOMPRESS_SERVER_FILE_RPC_H_

#include <grpcpp/grpcpp.h>

#include "kvcompress/v1/compression_service.pb.h"
#include "service_state.h"

namespace kvcompress {

// One call each; they delete themselves when it is over. `request` is theirs to
// read until then.
grpc::ServerWriteReactor<v1::CompressFileResponse>* NewCompressFile(
    grpc::CallbackServerContext* context,
    const v1::CompressFileRequest* request, ServiceState* state);
grpc::ServerWriteReactor<v1::DecompressFileResponse>* NewDecompressFile(
    grpc::CallbackServerContext* context,
    const v1::DecompressFileRequest* request, ServiceState* state);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_FILE_RPC_H_
