// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// From the text of a flag to its value. Each returns INVALID_ARGUMENT, saying
// what is expected, and then leaves its target unspecified.

#ifndef KVCOMPRESS_SERVER_FLAG_VALUES_H_
#define KVCOMPRESS_SERVER_FLAG_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "access.h"
#include "address.h"
#include "kvcompress/error.h"

namespace kvcompress {

// A number of bytes from `min` to `max`, such as 1073741824 or 1GiB.
absl::Status SetBytes(absl::string_view text, uint64_t min, uint64_t max,
                      uint64_t* bytes);

// A number of seconds from `min` to `max`, fractions allowed.
absl::Status SetSeconds(absl::string_view text, double min, double max,
                        absl::Duration* duration);

// A whole number from 1 to 100.
absl::Status SetPercent(absl::string_view text, int* percent);

// A whole number from 1 to `max`.
absl::Status SetCount(absl::string_view text, int max,
                      std::optional<int>* count);

// Rules of AccessRules.
absl::Status SetAccess(absl::Span<const std::string> texts,
                       AccessRules* access);

// "true" or "false", "1" or "0".
absl::Status SetBool(absl::string_view text, bool* value);

// Permission bits in octal, such as 0660.
absl::Status SetMode(absl::string_view text, std::optional<uint32_t>* mode);

// At least one address, none twice.
absl::Status SetListen(absl::Span<const std::string> texts,
                       std::vector<ListenAddress>* listen);

// A host and a port, or nothing.
absl::Status SetMetricsListen(absl::string_view text,
                              std::optional<ListenAddress>* listen);

template <typename Enum>
absl::Status SetEnum(absl::string_view text,
                     absl::Span<const std::pair<absl::string_view, Enum>> names,
                     Enum* value) {
  std::string known;
  for (const auto& [name, candidate] : names) {
    if (name == text) {
      *value = candidate;
      return absl::OkStatus();
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteName(text), " is not one of ", known));
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_FLAG_VALUES_H_
