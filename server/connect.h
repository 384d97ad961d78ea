// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Connections of a client with an end to its patience.

#ifndef KVCOMPRESS_SERVER_CONNECT_H_
#define KVCOMPRESS_SERVER_CONNECT_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "address.h"
#include "file_descriptor.h"

namespace kvcompress {

using Deadline = std::chrono::steady_clock::time_point;

// UNAVAILABLE, as the system puts it.
absl::Status SocketError(int error);

// Waits until the socket is ready for `events` of poll. DEADLINE_EXCEEDED.
absl::Status Await(const FileDescriptor& socket, int16_t events,
                   Deadline deadline);

// A connection, not blocking, to the first address of `address` that takes one.
// UNAVAILABLE or DEADLINE_EXCEEDED, with the reason. What resolves names is not
// bound by the deadline.
absl::StatusOr<FileDescriptor> Connect(const ListenAddress& address,
                                       Deadline deadline);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CONNECT_H_
