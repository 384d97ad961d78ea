// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Leaving no half-written file behind when a signal ends the process.

#ifndef KVCOMPRESS_CLIENT_CLI_SIGNALS_H_
#define KVCOMPRESS_CLIENT_CLI_SIGNALS_H_

namespace kvcompress::cli {

// From now on SIGHUP, SIGINT, SIGQUIT and SIGTERM remove the file of
// RemoveOnSignal before they end the process, except those that are ignored
// already. A write to a closed pipe is an error from now on, not a signal. Call
// once, before there are threads.
void InstallSignalHandlers();

// The one file to remove; null for none. Not thread safe.
void RemoveOnSignal(const char* path);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_SIGNALS_H_
