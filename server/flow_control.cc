// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "flow_control.h"

namespace kvcompress {
namespace {

constexpr int kAheadBytes = 2 << 20;
constexpr int kFrameBytes = 1 << 20;

}  // namespace

void SetFlowControl(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kAheadBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
}

}  // namespace kvcompress
