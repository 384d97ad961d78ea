// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How far clients may send ahead of a server that moves caches.

#ifndef KVCOMPRESS_SERVER_FLOW_CONTROL_H_
#define KVCOMPRESS_SERVER_FLOW_CONTROL_H_

#include <grpcpp/server_builder.h>

namespace kvcompress {

// Lets each stream send 2 MiB ahead, in frames of up to 1 MiB. Left to itself
// gRPC estimates how much a connection holds and lets a fast client send ever
// more ahead, which then waits in memory: for a cache of 184 MB, 54 to 64 MiB
// instead of 30 (2026-11-21, two processors), at the same speed. Only frames as
// small as gRPC makes them without that estimate are slower, by an eighth. And
// gRPC 1.51 cannot take a window back: when one has shrunk below what is on the
// way, the empty frame that ends a stream is taken for a breach of it.
void SetFlowControl(grpc::ServerBuilder* builder);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_FLOW_CONTROL_H_
