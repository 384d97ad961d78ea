// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The metadata of a profile file. Specified in core/FORMAT.md, "Profiles".
// Internal to the library.

#ifndef KVCOMPRESS_PROFILE_METADATA_H_
#define KVCOMPRESS_PROFILE_METADATA_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/profile.h"

namespace kvcompress::profile {

using Metadata = std::vector<std::pair<std::string, std::string>>;

// DATA_LOSS, for a profile that breaks the format.
absl::Status Damaged(absl::string_view what);
absl::Status Damaged(const absl::Status& cause);

// Of content that keeps the rules of the format.
Metadata WriteMetadata(const ProfileContent& content);

// Sets all of `*content` but what is in tensors. FAILED_PRECONDITION where it
// is of no profile, UNIMPLEMENTED of a later version, else DATA_LOSS. Ranges
// of numbers are not checked, nor whether keys suit the version: what has
// another form than WriteMetadata gives is damaged.
absl::Status ParseMetadata(const Metadata& metadata, ProfileContent* content);

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_METADATA_H_
