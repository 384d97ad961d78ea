// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/thresholds.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kvcompress/nearest_name.h"

namespace kvcompress::cli {

absl::StatusOr<v1::QualityThresholds> ParseThresholds(absl::string_view text) {
  v1::QualityThresholds thresholds;
  const google::protobuf::Reflection& fields =
      *v1::QualityThresholds::GetReflection();
  for (const absl::string_view pair : absl::StrSplit(text, ',')) {
    const std::pair<std::string, absl::string_view> parts =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const auto* const field =
        v1::QualityThresholds::descriptor()->FindFieldByName(parts.first);
    if (field == nullptr) {
      const std::vector<std::string> names =
          absl::StrSplit(ThresholdNames(), ", ");
      return absl::InvalidArgumentError(absl::StrCat(
          "must be NAME=VALUE pairs, with names among ", ThresholdNames(),
          ", but has \"", pair, "\"", DidYouMean(parts.first, names)));
    }
    double value;
    if (!absl::SimpleAtod(parts.second, &value) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the value of ", parts.first, " must be a finite number"));
    }
    if (fields.HasField(thresholds, field)) {
      return absl::InvalidArgumentError(
          absl::StrCat(parts.first, " is given twice"));
    }
    fields.SetDouble(&thresholds, field, value);
  }
  return thresholds;
}

std::string ThresholdNames() {
  const auto& descriptor = *v1::QualityThresholds::descriptor();
  std::vector<std::string> names;
  names.reserve(descriptor.field_count());
  for (int i = 0; i < descriptor.field_count(); ++i) {
    names.push_back(descriptor.field(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace kvcompress::cli
