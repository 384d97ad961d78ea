// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Bounds on quality as text: max_rmse=0.1,min_snr_db=20. The names are those of
// the fields of kvcompress.v1.QualityThresholds.

#ifndef KVCOMPRESS_CLIENT_CLI_THRESHOLDS_H_
#define KVCOMPRESS_CLIENT_CLI_THRESHOLDS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/v1/quality.pb.h"

namespace kvcompress::cli {

// Reads NAME=VALUE pairs with commas between them; values are finite.
// INVALID_ARGUMENT, saying which pair and why.
absl::StatusOr<v1::QualityThresholds> ParseThresholds(absl::string_view text);

// Every name, with commas between them.
std::string ThresholdNames();

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_THRESHOLDS_H_
