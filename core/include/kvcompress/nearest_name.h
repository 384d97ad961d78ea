// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which known name somebody may have meant.

#ifndef KVCOMPRESS_NEAREST_NAME_H_
#define KVCOMPRESS_NEAREST_NAME_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvcompress {

// The name of `known` that fewest insertions, removals and replacements of
// characters, and exchanges of neighbours, make of `name`, the first of equals;
// empty where that takes more than a third of its length. Capitals are the same
// as small letters.
std::string NearestName(absl::string_view name,
                        absl::Span<const std::string> known);

// "; did you mean X?", to stand at the end of a message; empty where no name is
// near.
std::string DidYouMean(absl::string_view name,
                       absl::Span<const std::string> known);

}  // namespace kvcompress

#endif  // KVCOMPRESS_NEAREST_NAME_H_
