// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/columns.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace kvcompress::cli {
namespace {

size_t CharactersOf(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
      }));
}

}  // namespace

void Columns::AddRow(std::vector<std::string> cells) {
  rows_.push_back(std::move(cells));
}

std::string Columns::ToString() const {
  std::vector<size_t> widths(sides_.size(), 0);
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], CharactersOf(row[i]));
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - CharactersOf(row[i]), ' ');
      const bool left = sides_[i] == Side::kLeft;
      absl::StrAppend(&line, i > 0 ? "  " : "", left ? row[i] : padding,
                      left ? padding : row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string SizeText(uint64_t bytes) {
  constexpr absl::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // What would be printed as 1000.0 is 1.0 of the next unit.
  while (value >= (unit == 0 ? 1000 : 999.95) && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(bytes, " B");
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string RatioText(double ratio) { return absl::StrFormat("%.2fx", ratio); }

std::string CodecCountsText(const std::map<std::string, uint64_t>& tensors) {
  constexpr size_t kMaxCodecs = 3;
  std::vector<std::pair<uint64_t, std::string>> codecs;
  codecs.reserve(tensors.size());
  for (const auto& [codec, count] : tensors) codecs.emplace_back(count, codec);
  std::sort(codecs.begin(), codecs.end(), std::greater<>());
  std::vector<std::string> parts;
  uint64_t others = 0;
  for (size_t i = 0; i < codecs.size(); ++i) {
    const auto& [count, codec] = codecs[i];
    if (i >= kMaxCodecs) {
      others += count;
    } else {
      parts.push_back(absl::StrCat(codec, " for ", count,
                                   i > 0        ? ""
                                   : count == 1 ? " tensor"
                                                : " tensors"));
    }
  }
  if (others > 0) parts.push_back(absl::StrCat("other codecs for ", others));
  return absl::StrJoin(parts, ", ");
}

}  // namespace kvcompress::cli
