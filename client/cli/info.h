// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What -info prints: an artefact as its header describes it.

#ifndef KVCOMPRESS_CLIENT_CLI_INFO_H_
#define KVCOMPRESS_CLIENT_CLI_INFO_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "kvcompress/byte_stream.h"

namespace kvcompress::cli {

// Verifies and reads the header, and counts the bytes after it; payloads are
// neither decoded nor verified. DATA_LOSS when the file is shorter or longer
// than its header says, and the codes of ParseArtefactHeader.
absl::StatusOr<nlohmann::ordered_json> InfoJson(ByteSource* artefact);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_INFO_H_
