// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The fixed texts of an artefact's header (core/FORMAT.md, section 2). Never
// change these values. Internal to the library.

#ifndef KVCOMPRESS_CONTAINER_KEYS_H_
#define KVCOMPRESS_CONTAINER_KEYS_H_

#include "absl/strings/string_view.h"

namespace kvcompress {

inline constexpr absl::string_view kReservedPrefix = "kvcompress.";
inline constexpr absl::string_view kChecksumKey = "kvcompress.checksum";
inline constexpr absl::string_view kFormatKey = "kvcompress.format";
inline constexpr absl::string_view kLayoutKey = "kvcompress.layout";
inline constexpr absl::string_view kTensorsKey = "kvcompress.tensors";
inline constexpr absl::string_view kProfileKey = "kvcompress.profile";
inline constexpr absl::string_view kLabelPrefix = "kvcompress.label.";

inline constexpr absl::string_view kLayout = "bhtd";
inline constexpr absl::string_view kDigestName = "xxh3-128:";

// How the JSON text of every artefact begins; the digits of the checksum
// follow.
inline constexpr absl::string_view kFixedBeginning =
    R"({"__metadata__":{"kvcompress.checksum":"xxh3-128:)";

// Where the digits stand in the file: after the length and the beginning.
inline constexpr size_t kChecksumOffset = 8 + kFixedBeginning.size();

}  // namespace kvcompress

#endif  // KVCOMPRESS_CONTAINER_KEYS_H_
