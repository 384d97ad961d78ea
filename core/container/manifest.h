// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The manifest of an artefact: the value of `kvcompress.tensors`
// (core/FORMAT.md, section 2). Internal to the library.

#ifndef KVCOMPRESS_CONTAINER_MANIFEST_H_
#define KVCOMPRESS_CONTAINER_MANIFEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/artefact.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/safetensors.h"

namespace kvcompress {

// A digest that stands in until the real one is known.
inline constexpr absl::string_view kNoDigest =
    "00000000000000000000000000000000";

// Both return the error of the checkpoint where it stops them.

// Tensors without a digest get kNoDigest.
absl::StatusOr<std::string> SerializeManifest(const ArtefactHeader& header,
                                              Checkpoint* checkpoint);

// Reads what SerializeManifest writes into `tensors` and `laid_out`, for the
// tensors of a file's header in their order, of which it takes names and sizes.
// INVALID_ARGUMENT; UNIMPLEMENTED for a codec this build does not know.
absl::Status ParseManifest(absl::string_view text,
                           absl::Span<const SafetensorsEntry> entries,
                           Checkpoint* checkpoint, ArtefactHeader* header);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CONTAINER_MANIFEST_H_
