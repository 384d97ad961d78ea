// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A built-in cache through the data path of every codec: for probes, operators
// and start-up.

#ifndef KVCOMPRESS_SERVER_SELF_TEST_H_
#define KVCOMPRESS_SERVER_SELF_TEST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"

namespace kvcompress {

struct SelfTestOutcome {
  std::string codec;      // "int4:64"
  absl::Status status;    // OK, or what went wrong
  CompressReport report;  // complete when status is OK
  double seconds = 0;
};

// One outcome for each codec and parameter, or for those of one codec.
// INVALID_ARGUMENT for an unknown codec.
absl::StatusOr<std::vector<SelfTestOutcome>> SelfTest(absl::string_view codec);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_SELF_TEST_H_
