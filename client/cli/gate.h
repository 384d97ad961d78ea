// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The quality gate: bounds that every tensor must hold, or nothing is
// published.

#ifndef KVCOMPRESS_CLIENT_CLI_GATE_H_
#define KVCOMPRESS_CLIENT_CLI_GATE_H_

#include "kvcompress/v1/compression_service.pb.h"

namespace kvcompress::cli {

// Whether `options` has bounds at all.
bool HasGate(const v1::CompressOptions& options);

// Whether every tensor of `*report`, which lists them, holds the bounds that
// the request set, by the verdict of the service on it. When not, the verdict
// of
// `*report` says which tensors miss which bounds by how much.
bool ApplyGate(v1::CompressionReport* report);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_GATE_H_
