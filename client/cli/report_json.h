// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Reports as the JSON of the Go program: its keys in its order, then those that
// are new. What is not known, and an infinite SNR, is null.

#ifndef KVCOMPRESS_CLIENT_CLI_REPORT_JSON_H_
#define KVCOMPRESS_CLIENT_CLI_REPORT_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "kvcompress/v1/compression_service.pb.h"

namespace kvcompress::cli {

// Of Compress and Measure. `verbose` adds what is known of each tensor.
nlohmann::ordered_json CompressionJson(const v1::CompressionReport& report,
                                       bool verbose);

// Of Decompress. The quality is not known here.
nlohmann::ordered_json DecompressionJson(const v1::DecompressionReport& report);

// Of -verify: the same after "verified", or what is wrong.
nlohmann::ordered_json VerifiedJson(const v1::DecompressionReport& report);
nlohmann::ordered_json DamagedJson(const absl::Status& error);

// An error: its code, its message, its reason and the place that it names.
nlohmann::ordered_json ErrorJson(const absl::Status& error);

// Indented by two spaces, with a line end. In ASCII, so that no name acts on a
// terminal; what is not UTF-8 is replaced.
std::string Print(const nlohmann::ordered_json& json);

// The same in one line.
std::string PrintLine(const nlohmann::ordered_json& json);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_REPORT_JSON_H_
