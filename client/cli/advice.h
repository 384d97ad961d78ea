// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What kv-compress tells people on standard error in addition to the result:
// warnings of the report, and which codec holds bounds that did not hold.

#ifndef KVCOMPRESS_CLIENT_CLI_ADVICE_H_
#define KVCOMPRESS_CLIENT_CLI_ADVICE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "client/cli/flags.h"
#include "kvcompress/client.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "kvcompress/v1/quality.pb.h"

namespace kvcompress::cli {

// A line for each warning, which begins with `prefix`.
void PrintWarnings(const v1::CompressionReport& report,
                   absl::string_view prefix = "");

// Largest input that is measured once more for advice, in bytes.
inline constexpr uint64_t kMaxMeasuredAgain = uint64_t{256} << 20;

// Where bounds that were asked for do not hold (`!holds`), or the default codec
// misses the default thresholds: prints a line with the codec that holds them.
// That is measured, with `auto` on the same input. Where it cannot be, because
// the input is no file or is larger than kMaxMeasuredAgain, the line says which
// command does it.
void Advise(const Flags& flags, const v1::CompressOptions& options,
            const Client& client, const v1::CompressionReport& report,
            bool holds);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_ADVICE_H_
