// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The life of a server process, from listening to a clean stop:
//
//   NOT_SERVING  listens; runs the self-test
//   SERVING      until SIGTERM or SIGINT; NOT_SERVING for as long as it does
//                not get an answer from itself on every address
//   NOT_SERVING  after SIGTERM still serves for the drain delay; then takes no
//                new calls, ends health watches, and lets running streams
//                finish for the grace, after which they are cancelled
//
// SIGINT skips the drain delay. A second signal ends the delay and the grace at
// once. A server that is unreachable for DaemonOptions::unreachable_exit takes
// the last of these steps by itself, and ends with an error.

#ifndef KVCOMPRESS_SERVER_LIFECYCLE_H_
#define KVCOMPRESS_SERVER_LIFECYCLE_H_

#include "absl/status/status.h"
#include "config.h"
#include "signals.h"

namespace kvcompress {

// Whether RunServer could start with these options, as far as the files of TLS,
// the shared directory and the limit of file descriptors show. The error names
// the file, or what does not fit.
absl::Status CheckConfig(const DaemonOptions& options);

// Serves until stopped: OK. UNAVAILABLE when an address cannot be bound,
// FAILED_PRECONDITION when the path of a Unix socket is taken or the files of
// TLS are not fit, RESOURCE_EXHAUSTED when the system gives too few threads,
// INTERNAL when the self-test fails. Logs through spdlog.
// REQUIRES: the options are within their ranges.
absl::Status RunServer(const DaemonOptions& options, StopSignals* signals);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_LIFECYCLE_H_
