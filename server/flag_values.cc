// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "flag_values.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "byte_size.h"

namespace kvcompress {

absl::Status SetBytes(absl::string_view text, uint64_t min, uint64_t max,
                      uint64_t* bytes) {
  const std::optional<uint64_t> value = ParseByteSize(text);
  if (!value || *value < min || *value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(text), " is not a number of bytes from ", min,
                     " to ", max, " (units: KiB, MiB, GiB, TiB)"));
  }
  *bytes = *value;
  return absl::OkStatus();
}

absl::Status SetSeconds(absl::string_view text, double min, double max,
                        absl::Duration* duration) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= min) || value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(text), " is not a number of seconds from ", min,
                     " to ", max));
  }
  *duration = absl::Seconds(value);
  return absl::OkStatus();
}

absl::Status SetPercent(absl::string_view text, int* percent) {
  if (!absl::SimpleAtoi(text, percent) || *percent < 1 || *percent > 100) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(text), " is not a percentage from 1 to 100"));
  }
  return absl::OkStatus();
}

absl::Status SetCount(absl::string_view text, int max,
                      std::optional<int>* count) {
  int value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > max) {
    return absl::InvalidArgumentError(absl::StrCat(
        QuoteName(text), " is not a whole number from 1 to ", max));
  }
  *count = value;
  return absl::OkStatus();
}

absl::Status SetAccess(absl::Span<const std::string> texts,
                       AccessRules* access) {
  *access = AccessRules();
  for (const std::string& text : texts) {
    if (absl::Status status = access->Add(text); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SetBool(absl::string_view text, bool* value) {
  return SetEnum<bool>(
      text, {{"true", true}, {"false", false}, {"1", true}, {"0", false}},
      value);
}

absl::Status SetMode(absl::string_view text, std::optional<uint32_t>* mode) {
  uint32_t bits = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '7' || bits > 077) bits = 01000;
    bits = bits * 8 + static_cast<uint32_t>(digit - '0');
  }
  if (text.empty() || bits > 0777) {
    return absl::InvalidArgumentError(absl::StrCat(
        QuoteName(text), " is not a file mode in octal from 0 to 0777"));
  }
  *mode = bits;
  return absl::OkStatus();
}

absl::Status SetListen(absl::Span<const std::string> texts,
                       std::vector<ListenAddress>* listen) {
  listen->clear();
  for (const std::string& text : texts) {
    absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
    if (!address.ok()) return address.status();
    const bool repeated =
        std::find(listen->begin(), listen->end(), *address) != listen->end();
    if (repeated && (address->is_unix() || address->port != 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat(address->ToString(), " is given twice"));
    }
    listen->push_back(*std::move(address));
  }
  return absl::OkStatus();
}

absl::Status SetMetricsListen(absl::string_view text,
                              std::optional<ListenAddress>* listen) {
  listen->reset();
  if (text.empty()) return absl::OkStatus();
  absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
  if (!address.ok()) return address.status();
  if (address->is_unix()) {
    return absl::InvalidArgumentError("metrics need HOST:PORT, not a path");
  }
  *listen = *std::move(address);
  return absl::OkStatus();
}

}  // namespace kvcompress
