// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which known name somebody may have meant.

#ifndef KVCOMPRESS_SERVER_NEAREST_NAME_H_
#define KVCOMPRESS_SERVER_NEAREST_NAME_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvcompress {

// The name of `known` that fewest insertions, removals and replacements of
// characters make of `name`, the first of equals; empty where that takes more
// than a third of its length.
std::string NearestName(absl::string_view name,
                        absl::Span<const std::string> known);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_NEAREST_NAME_H_
