// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What kv-compress tells people on standard error in addition to the result:
// warnings of the report, and which codec holds bounds that did not hold.

#ifndef KVCOMPRESS_CLIENT_CLI_ADVICE_H_
#define KVCOMPRESS_CLIENT_CLI_ADVICE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "client/cli/flags.h"
#include "kvcompress/client.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "kvcompress/v1/quality.pb.h"

namespace kvcompress::cli {

// A line for each warning of a report, with `prefix` before its message.
std::string WarningLines(const v1::CompressionReport& report,
                         absl::string_view prefix = "");

// Whether the quality of all tensors together is POOR, which is said whoever
// chose the codec: in a line for one file, where Advise says nothing of it, or
// in one for several.
bool IsPoor(const v1::CompressionReport& report);
std::string PoorLine(const v1::CompressionReport& report);
std::string PoorLine(size_t poor, size_t files);

// Largest input that is measured once more for advice, and what is measured of
// one that is larger, in bytes: to measure all of it takes many times as long
// as `int4`.
inline constexpr uint64_t kMaxMeasuredAgain = uint64_t{4} << 20;
inline constexpr uint64_t kMeasuredSample = uint64_t{1} << 20;

// Where bounds that were asked for do not hold (`!holds`), or the default codec
// misses the default thresholds: prints a line with the codec that holds them.
// That is measured, with `auto` on the same input or on a sample of it. Where
// it cannot be, because the input is no file or has no tensors to sample, the
// line says which command does it. Returns whether it printed one.
bool Advise(const Flags& flags, const v1::CompressOptions& options,
            const Client& client, const v1::CompressionReport& report,
            bool holds);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_ADVICE_H_
