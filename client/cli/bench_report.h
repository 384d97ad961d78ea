// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What bench measured, as JSON and as a table that is made of it.

#ifndef KVCOMPRESS_CLIENT_CLI_BENCH_REPORT_H_
#define KVCOMPRESS_CLIENT_CLI_BENCH_REPORT_H_

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/bench_load.h"
#include "kvcompress/v1/quality.pb.h"

namespace kvcompress::cli {

enum class Direction { kCompress, kRestore };

// "compress" or "restore".
absl::string_view DirectionName(Direction direction);

// A measurement. Bytes are those of the tensors, uncompressed, in both
// directions; MB and GB are powers of 1000. What is of calls that succeeded is
// null where none did.
nlohmann::ordered_json MeasurementJson(const std::string& codec,
                                       Direction direction, size_t concurrency,
                                       const v1::CompressionReport& report,
                                       const LoadResult& result);

// A codec that was not measured.
nlohmann::ordered_json FailureJson(const std::string& codec,
                                   const absl::Status& error);

// Of what MeasureServer (bench.h) returns: whether a call failed, and a row for
// each measurement.
bool HasFailure(const nlohmann::ordered_json& json);
std::string BenchTable(const nlohmann::ordered_json& json);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_BENCH_REPORT_H_
