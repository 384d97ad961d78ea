// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "layout/notation.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "kvcompress/nearest_name.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

// core/FORMAT.md, "Layouts". Only names that are not notations themselves.
struct NamedLayout {
  absl::string_view name;
  absl::string_view notation;
};
constexpr NamedLayout kNamedLayouts[] = {
    {"td", "t(hd)"},        {"ltd", "lt(hd)"},
    {"2ltd", "2lt(hd)"},    {"ltf", "lt(h2d)"},
    {"1ltf", "1lt(h2d)"},   {"paged", "phsd"},
    {"paged2", "2pshd"},    {"pagedf", "phs(2d)"},
    {"mla", "t(d+r):r=64"}, {"paged_mla", "ps(d+r):r=64"},
};

// Notations that are as well known as names.
constexpr absl::string_view kUsualNotations[] = {"bhtd", "bthd", "thd", "htd"};

// The names that sizes go by.
struct SizeName {
  absl::string_view name;
  char axis;
};
constexpr SizeName kSizeNames[] = {
    {"batch", 'b'},  {"layers", 'l'},    {"groups", 'g'}, {"heads", 'h'},
    {"pages", 'p'},  {"page_size", 's'}, {"tokens", 't'}, {"head_dim", 'd'},
    {"latent", 'd'}, {"rope", 'r'},
};

constexpr uint64_t kLargestSize = uint64_t{1} << 32;

// "; did you mean paged?" for "page:heads=8".
std::string Suggestion(absl::string_view text) {
  std::vector<std::string> names;
  for (const NamedLayout& each : kNamedLayouts) names.emplace_back(each.name);
  for (const absl::string_view each : kUsualNotations) {
    names.emplace_back(each);
  }
  const absl::string_view name = text.substr(0, text.find(':'));
  const bool known = std::find(names.begin(), names.end(), name) != names.end();
  return known ? "" : DidYouMean(name, names);
}

absl::Status Refuse(absl::string_view text, absl::string_view what) {
  // What it was meant to be is no secret, and is not long.
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("layout ", QuoteName(text.substr(0, kMaxLayoutText)), ": ",
                   what, Suggestion(text)),
      {.reason = "INVALID_LAYOUT", .field = "options.layout"});
}

// Reads "(h2d)", "(d+r)" or one letter from the front.
absl::Status ReadDimension(absl::string_view whole, absl::string_view* left,
                           LayoutNotation* notation) {
  DimensionNotation dimension;
  if (left->front() != '(') {
    dimension.axes = std::string(left->substr(0, 1));
    left->remove_prefix(1);
  } else {
    const size_t end = left->find(')');
    if (end == absl::string_view::npos) return Refuse(whole, "a ( has no )");
    const absl::string_view inner = left->substr(1, end - 1);
    left->remove_prefix(end + 1);
    dimension.sum = inner == "d+r";
    dimension.axes = dimension.sum ? "dr" : std::string(inner);
    if (inner.empty() || dimension.axes.find('1') != std::string::npos) {
      return Refuse(whole, "a dimension in ( ) holds nothing, or a 1");
    }
  }
  for (const char axis : dimension.axes) {
    if (axis == '1') continue;
    if (kAxes.find(axis) == absl::string_view::npos) {
      return Refuse(whole,
                    absl::StrCat("there is no axis ",
                                 QuoteName(absl::string_view(&axis, 1)),
                                 "; axes are b l 2 g h p s t d r and 1"));
    }
  }
  notation->dimensions.push_back(std::move(dimension));
  return absl::OkStatus();
}

absl::Status ReadSizes(absl::string_view whole, absl::string_view text,
                       LayoutNotation* notation) {
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(item, '=');
    char axis = 0;
    if (parts.size() == 2) {
      for (const SizeName& each : kSizeNames) {
        if (parts[0] == each.name ||
            parts[0] == absl::string_view(&each.axis, 1)) {
          axis = each.axis;
        }
      }
    }
    uint64_t size = 0;
    if (axis == 0 || !absl::SimpleAtoi(parts[1], &size) || size == 0 ||
        size > kLargestSize) {
      return Refuse(whole, "sizes are such as heads=8 or head_dim=128");
    }
    notation->sizes[axis] = size;
  }
  return absl::OkStatus();
}

// The rules that concern all dimensions.
absl::Status Check(absl::string_view whole, const LayoutNotation& notation) {
  std::string all;
  for (const DimensionNotation& dimension : notation.dimensions) {
    for (const char axis : dimension.axes) {
      if (axis != '1' && all.find(axis) != std::string::npos) {
        return Refuse(whole, "an axis is there twice");
      }
      all += axis;
    }
    if (!dimension.sum && dimension.axes.find('r') != std::string::npos) {
      return Refuse(whole, "r is only in (d+r)");
    }
  }
  const auto has = [&](char axis) {
    return all.find(axis) != std::string::npos;
  };
  if (notation.dimensions.size() > kMaxRank) {
    return Refuse(whole, "there are too many dimensions");
  }
  if (!has('d')) return Refuse(whole, "there is no axis d for channels");
  if (!has('t') && !has('s')) {
    return Refuse(whole, "there is no axis t, or p and s, for tokens");
  }
  if (has('t') && (has('p') || has('s'))) {
    return Refuse(whole, "tokens are t, or pages p of s tokens, not both");
  }
  if (has('g') && !has('h')) return Refuse(whole, "g needs h");
  for (const auto& [axis, size] : notation.sizes) {
    if (!has(axis)) {
      return Refuse(whole, absl::StrCat("it has no axis for ", AxisName(axis)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string LayoutNotation::Text() const {
  std::string text;
  for (const DimensionNotation& dimension : dimensions) {
    if (dimension.sum) {
      text += "(d+r)";
    } else if (dimension.axes.size() == 1) {
      text += dimension.axes;
    } else {
      absl::StrAppend(&text, "(", dimension.axes, ")");
    }
  }
  return text;
}

absl::string_view AxisName(char axis) {
  if (axis == '2') return "keys and values";
  for (const SizeName& each : kSizeNames) {
    if (each.axis == axis) return each.name;
  }
  return "";
}

absl::StatusOr<LayoutNotation> ParseLayout(absl::string_view text) {
  if (text.size() > kMaxLayoutText) {
    return Refuse(text, "it has more than 256 bytes");
  }
  std::string packed;
  for (const char c : text) {
    if (c != ' ') packed += c;
  }
  LayoutNotation notation;
  // A name comes with sizes of its own, which those of the caller go before.
  const auto read = [&](absl::string_view part) -> absl::Status {
    const size_t colon = std::min(part.find(':'), part.size());
    absl::string_view dimensions = part.substr(0, colon);
    if (dimensions.empty()) return Refuse(text, "it names no dimension");
    while (!dimensions.empty()) {
      KVC_RETURN_IF_ERROR(ReadDimension(text, &dimensions, &notation));
    }
    if (colon == part.size()) return absl::OkStatus();
    return ReadSizes(text, part.substr(colon + 1), &notation);
  };
  const absl::string_view whole = packed;
  const size_t colon = std::min(whole.find(':'), whole.size());
  const NamedLayout* const named =
      std::find_if(std::begin(kNamedLayouts), std::end(kNamedLayouts),
                   [&](const NamedLayout& each) {
                     return each.name == whole.substr(0, colon);
                   });
  if (named == std::end(kNamedLayouts)) {
    KVC_RETURN_IF_ERROR(read(whole));
  } else {
    KVC_RETURN_IF_ERROR(read(named->notation));
    if (colon < whole.size()) {
      const std::map<char, uint64_t> own = std::exchange(notation.sizes, {});
      KVC_RETURN_IF_ERROR(ReadSizes(text, whole.substr(colon + 1), &notation));
      // Of a sum one size is enough, and two might contradict.
      if (!notation.sizes.contains('d'))
        notation.sizes.insert(own.begin(), own.end());
    }
  }
  KVC_RETURN_IF_ERROR(Check(text, notation));
  return notation;
}

}  // namespace kvcompress
