// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

// The distance of Damerau and Levenshtein, in its form that changes no
// substring twice (optimal string alignment), row by row.
size_t EditDistance(absl::string_view from, absl::string_view to) {
  std::vector<size_t> before(to.size() + 1), above(to.size() + 1),
      row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = above[j] + (from[i] == to[j] ? 0 : 1);
      row[j + 1] = std::min({replaced, above[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j]) {
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
      }
    }
  }
  return row.back();
}

}  // namespace

std::string NearestName(absl::string_view name,
                        absl::Span<const std::string> known) {
  std::string nearest;
  size_t least = name.size() / 3 + 1;
  const std::string small = absl::AsciiStrToLower(name);
  for (const std::string& candidate : known) {
    // Names that differ so much in length are not compared, however long.
    if (candidate.size() >= name.size() + least ||
        name.size() >= candidate.size() + least) {
      continue;
    }
    const size_t distance =
        EditDistance(small, absl::AsciiStrToLower(candidate));
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string DidYouMean(absl::string_view name,
                       absl::Span<const std::string> known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace kvcompress
