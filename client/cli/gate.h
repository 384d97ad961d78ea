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
// `options` sets: those of its role before those for all. A metric that is not
// set is that of an exact tensor, or is not for this one, and holds. When not,
// the verdict of `*report` says which tensors miss which bounds by how much.
bool ApplyGate(const v1::CompressOptions& options,
               v1::CompressionReport* report);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_GATE_H_
