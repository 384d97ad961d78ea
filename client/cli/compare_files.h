// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// -compare of several files and folders.

#ifndef KVCOMPRESS_CLIENT_CLI_COMPARE_FILES_H_
#define KVCOMPRESS_CLIENT_CLI_COMPARE_FILES_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/flags.h"

namespace kvcompress::cli {

// Compares codecs on each file that `flags` name, and prints a table or a line
// of JSON for each as soon as it is known, then one for all of them together.
// A file that fails does not stop the others. Returns the exit status.
absl::StatusOr<int> RunComparisons(const Flags& flags);

// A row for each codec from those of several comparisons, each as CompareCodecs
// returns it: sums of sizes and tensors, speeds over all bytes, the worst
// quality, in how many files it failed ("failed"). In the order in which codecs
// first appear.
nlohmann::ordered_json SummaryRows(
    absl::Span<const nlohmann::ordered_json> comparisons);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_COMPARE_FILES_H_
