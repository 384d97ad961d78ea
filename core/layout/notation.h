// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The text of a layout (core/FORMAT.md, "Layouts"). Internal to the library.

#ifndef KVCOMPRESS_LAYOUT_NOTATION_H_
#define KVCOMPRESS_LAYOUT_NOTATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Every axis that a dimension may hold, besides `1`.
inline constexpr absl::string_view kAxes = "bl2ghpstdr";

// What a dimension of the source holds: one axis; several, the last of which
// varies fastest; or `d` and `r`, one behind the other.
struct DimensionNotation {
  std::string axes;
  bool sum = false;
};

struct LayoutNotation {
  std::vector<DimensionNotation> dimensions;
  std::map<char, uint64_t> sizes;  // as far as they are given

  // Without sizes: "lt(h2d)".
  std::string Text() const;
};

// "heads", for an axis; to be used in messages and as the name of its size.
absl::string_view AxisName(char axis);

// Takes names, such as `td`, and notations, such as `t(hd)`, both with sizes
// behind a colon, as in `td:heads=3`. INVALID_ARGUMENT, reason INVALID_LAYOUT,
// without a place.
absl::StatusOr<LayoutNotation> ParseLayout(absl::string_view text);

}  // namespace kvcompress

#endif  // KVCOMPRESS_LAYOUT_NOTATION_H_
