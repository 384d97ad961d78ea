// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Server reflection, by gRPC's callback API. Ours rather than gRPC's own, in
// which each open stream holds a thread, and each name that is asked for and
// not there stays in memory. The answers are made once; requests are read as
// they are on the wire, up to kMaxSmallRequest bytes.

#ifndef KVCOMPRESS_SERVER_REFLECTION_H_
#define KVCOMPRESS_SERVER_REFLECTION_H_

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "watchdog.h"

namespace kvcompress {

// Most streams of both versions at a time; a further one displaces the one that
// has waited longest for its client.
inline constexpr size_t kMaxReflectionStreams = 256;

// grpc.reflection.v1 and v1alpha, which describe themselves and `services`,
// full names of compiled protobuf services. They share their streams, which are
// cut off as `limits` says. Thread safe. REQUIRES: the service outlives the
// grpc::Server that it is registered with.
std::unique_ptr<grpc::Service> NewReflectionService(
    std::vector<std::string> services, const Watchdog::Limits& limits);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_REFLECTION_H_
