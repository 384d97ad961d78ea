// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Results as tables for people. Each is made of the JSON of the same result.

#ifndef KVCOMPRESS_CLIENT_CLI_TEXT_TABLES_H_
#define KVCOMPRESS_CLIENT_CLI_TEXT_TABLES_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "client/cli/flags.h"

namespace kvcompress::cli {

// Of one file, under `mode`; with the tensors, where `json` lists them.
// `output` is empty where nothing was written.
std::string ResultTable(Mode mode, const std::string& input,
                        const std::string& output,
                        const nlohmann::ordered_json& json);

// Of -compare: a row for each codec.
std::string ComparisonTable(const nlohmann::ordered_json& json);

// "41 % (12 to 60 %)": what training measured of a preset, as part of int4's
// divergence, and by kind of text where that was measured.
std::string ShareText(const nlohmann::ordered_json& expectation);

// Of several files: what stands above their rows, and a row. `json` is null for
// a file that failed.
std::string BatchHeading(Mode mode);
std::string BatchRow(Mode mode, const std::string& input,
                     const nlohmann::ordered_json& json);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_TEXT_TABLES_H_
