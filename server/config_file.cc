// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "flags.h"
#include "kvcompress/error.h"
#include "kvcompress/nearest_name.h"
#include "read_file.h"

namespace kvcompress {
namespace {

using Settings = std::map<std::string, FileSetting>;

constexpr uint64_t kMaxFileBytes = 1 << 20;

// "FILE:LINE", for people, who count from 1.
std::string Place(const std::string& path, const YAML::Mark& mark) {
  return mark.line < 0 ? path : absl::StrCat(path, ":", mark.line + 1);
}

absl::Status Invalid(absl::string_view place, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", why));
}

absl::StatusOr<const Flag*> FlagOf(const YAML::Node& key,
                                   const std::string& place) {
  if (!key.IsScalar()) return Invalid(place, "a key must be an option's name");
  std::vector<std::string> names;
  for (const Flag& flag : AllFlags()) {
    if (key.Scalar() == flag.name) return &flag;
    names.emplace_back(flag.name);
  }
  const std::string nearest = NearestName(key.Scalar(), names);
  return Invalid(
      place, absl::StrCat(QuoteName(key.Scalar()), " is no option",
                          nearest.empty()
                              ? "; see --help"
                              : absl::StrCat("; did you mean ", nearest, "?")));
}

// The values of a flag, as they stand there.
absl::StatusOr<std::vector<std::string>> ValuesOf(const Flag& flag,
                                                  const YAML::Node& value,
                                                  const std::string& place) {
  const auto invalid = [&](absl::string_view why) {
    return Invalid(place, absl::StrCat(flag.name, " ", why));
  };
  std::vector<std::string> values;
  if (value.IsScalar()) {
    values.push_back(value.Scalar());
  } else if (value.IsSequence()) {
    if (!flag.is_list) return invalid("takes one value, not a list");
    for (const YAML::Node& each : value) {
      if (!each.IsScalar()) return invalid("must be a list of plain values");
      values.push_back(each.Scalar());
    }
  } else if (value.IsMap()) {
    return invalid("must be a plain value");
  }
  const bool empty =
      std::all_of(values.begin(), values.end(),
                  [](const std::string& each) { return each.empty(); });
  if (values.empty() || (empty && !flag.may_be_empty)) {
    return invalid("has no value");
  }
  return values;
}

absl::StatusOr<Settings> Parse(const std::string& path,
                               const std::string& text) {
  const std::vector<YAML::Node> documents = YAML::LoadAll(text);
  Settings settings;
  if (documents.empty() || documents[0].IsNull()) return settings;
  if (documents.size() > 1) {
    return Invalid(Place(path, documents[1].Mark()), "only one YAML document");
  }
  const YAML::Node& root = documents[0];
  if (!root.IsMap()) {
    return Invalid(Place(path, root.Mark()),
                   "not a YAML mapping of options to values");
  }
  for (const auto& entry : root) {
    const std::string place = Place(path, entry.first.Mark());
    const absl::StatusOr<const Flag*> flag = FlagOf(entry.first, place);
    if (!flag.ok()) return flag.status();
    absl::StatusOr<std::vector<std::string>> values =
        ValuesOf(**flag, entry.second, place);
    if (!values.ok()) return values.status();
    const auto [found, is_new] = settings.try_emplace(
        (*flag)->name, FileSetting{*std::move(values),
                                   absl::StrCat(place, ": ", (*flag)->name)});
    if (!is_new) {
      return Invalid(place, absl::StrCat((*flag)->name, " is given twice"));
    }
  }
  return settings;
}

}  // namespace

absl::StatusOr<Settings> ReadConfigFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxFileBytes);
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  try {
    return Parse(path, *text);
  } catch (const YAML::Exception& error) {
    return Invalid(Place(path, error.mark),
                   absl::StrCat("not YAML: ", error.msg));
  }
}

}  // namespace kvcompress
