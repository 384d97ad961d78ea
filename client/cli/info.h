// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What -info prints: an artefact, or a plain safetensors file, as its header
// describes it.

#ifndef KVCOMPRESS_CLIENT_CLI_INFO_H_
#define KVCOMPRESS_CLIENT_CLI_INFO_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "kvcompress/byte_stream.h"
#include "kvcompress/roles.h"

namespace kvcompress::cli {

// Verifies and reads the header, and counts the bytes after it; payloads are
// neither decoded nor verified. Of a file that is no artefact: what compression
// would take its tensors for, with `roles`, the layout that its metadata
// declare, and for each tensor the one that its values make likely. DATA_LOSS,
// or INVALID_ARGUMENT for a plain file, when it is shorter or longer than its
// header says; the codes of ParseArtefactHeader, ParseSafetensorsHeader and
// AssignRoles; INVALID_ARGUMENT for patterns with an artefact, whose roles are
// bound to it.
absl::StatusOr<nlohmann::ordered_json> InfoJson(ByteSource* file,
                                                const RolePatterns& roles);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_INFO_H_
