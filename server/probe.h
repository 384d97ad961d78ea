// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Asks a running server how it is: the health check of containers and units
// that have no other tool at hand.

#ifndef KVCOMPRESS_SERVER_PROBE_H_
#define KVCOMPRESS_SERVER_PROBE_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "config.h"

namespace kvcompress {

// OK when the server that runs with `options` on this machine is SERVING, which
// it has to say within `timeout`. Asks grpc.health.v1 on the first Unix socket,
// or else on the first address; with TLS, which would ask for a certificate of
// the probe too, `/healthz` on the metrics address instead. UNAVAILABLE, with
// the address and the reason, when it is not SERVING or does not answer;
// INVALID_ARGUMENT when the options name nothing that can be asked: a port that
// the system chose, or TLS without a metrics address.
absl::Status Probe(const DaemonOptions& options, absl::Duration timeout);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_PROBE_H_
