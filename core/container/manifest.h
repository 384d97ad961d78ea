// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The manifest of an artefact: the value of `kvcompress.tensors`
// (core/FORMAT.md, section 2). Internal to the library.

#ifndef KVCOMPRESS_CONTAINER_MANIFEST_H_
#define KVCOMPRESS_CONTAINER_MANIFEST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/artefact.h"

namespace kvcompress {

// A digest that stands in until the real one is known.
inline constexpr absl::string_view kNoDigest =
    "00000000000000000000000000000000";

// Tensors without a digest get kNoDigest.
std::string SerializeManifest(const std::vector<ArtefactTensor>& tensors);

// Reads what SerializeManifest writes, and nothing else; names and payload
// sizes are not in it. INVALID_ARGUMENT; UNIMPLEMENTED for a codec this build
// does not know.
absl::StatusOr<std::vector<ArtefactTensor>> ParseManifest(
    absl::string_view text);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CONTAINER_MANIFEST_H_
