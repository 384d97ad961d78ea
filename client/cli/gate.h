// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The quality gate of -min-snr-db.

#ifndef KVCOMPRESS_CLIENT_CLI_GATE_H_
#define KVCOMPRESS_CLIENT_CLI_GATE_H_

#include "kvcompress/v1/quality.pb.h"

namespace kvcompress::cli {

// Whether the SNR of every tensor is above `min_snr_db`, judged by the worst
// one; an exact tensor is above every bound. When not, the verdict of `*report`
// says so as well.
bool ApplyGate(double min_snr_db, v1::CompressionReport* report);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_GATE_H_
