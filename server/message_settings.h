// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What messages a server takes, whichever services it has.

#ifndef KVCOMPRESS_SERVER_MESSAGE_SETTINGS_H_
#define KVCOMPRESS_SERVER_MESSAGE_SETTINGS_H_

#include <grpcpp/server_builder.h>

#include <cstdint>

namespace kvcompress {

// Messages of up to `max_bytes`, as they are: none is inflated, because gRPC
// 1.51 inflates before it looks at the size, and a megabyte becomes a gigabyte.
// A call whose `grpc-encoding` is gzip or deflate ends with UNIMPLEMENTED
// before anything of it is read, which also holds for methods and services that
// there are not; a message that is marked as compressed, in an encoding that
// gRPC does not know or that is not named, is read as the bytes that it has.
void SetMessages(uint64_t max_bytes, grpc::ServerBuilder* builder);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_MESSAGE_SETTINGS_H_
