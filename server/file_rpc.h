// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The calls CompressFile and DecompressFile.

#ifndef KVCOMPRESS_SERVER_FILE_RPC_H_
#define KVCOMPRESS_SERVER_FILE_RPC_H_

#include <grpcpp/grpcpp.h>

#include "service_state.h"
#include "small_call.h"

namespace kvcompress {

// One call each; they delete themselves when it is over. Throw std::bad_alloc.
RawReactor* NewCompressFile(grpc::CallbackServerContext* context,
                            ServiceState* state);
RawReactor* NewDecompressFile(grpc::CallbackServerContext* context,
                              ServiceState* state);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_FILE_RPC_H_
