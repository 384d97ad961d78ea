// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Leaving no half-written file behind when a signal ends the process.

#ifndef KVCOMPRESS_CLIENT_CLI_SIGNALS_H_
#define KVCOMPRESS_CLIENT_CLI_SIGNALS_H_

namespace kvcompress::cli {

// From now on SIGHUP, SIGINT, SIGQUIT and SIGTERM remove the file of
// RemoveOnSignal before they end the process, except those that are ignored
// already. A write to a closed pipe, or beyond the limit of a file's size, is
// an error from now on, not a signal. Call once, before there are threads.
void InstallSignalHandlers();

// Ends the process as SIGPIPE ends a program that does not handle it, and
// removes the file of RemoveOnSignal first. For what lists results on a
// standard output that nobody reads any more, as behind `| head`.
void EndByClosedPipe();

// The one file to remove; null for none. Not thread safe.
void RemoveOnSignal(const char* path);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_SIGNALS_H_
