// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/error.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"

namespace kvcompress {
namespace {

constexpr char kTypeUrl[] = "kvcompress/error_detail";

// The payload is lines of "key=value" with values C-escaped, so that names may
// hold anything.
void AddLine(absl::string_view key, absl::string_view value,
             std::string* text) {
  absl::StrAppend(text, key, "=", absl::CEscape(value), "\n");
}

void AddNumber(absl::string_view key, const std::optional<uint64_t>& value,
               std::string* text) {
  if (value) AddLine(key, absl::StrCat(*value), text);
}

std::optional<uint64_t> ToNumber(const std::string& text) {
  uint64_t value;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

void Attach(const ErrorDetail& detail, absl::Status* status) {
  std::string payload;
  AddLine("reason", detail.reason, &payload);
  if (detail.tensor) AddLine("tensor", *detail.tensor, &payload);
  AddNumber("offset", detail.offset, &payload);
  AddNumber("element", detail.element, &payload);
  AddNumber("limit", detail.limit, &payload);
  if (detail.field) AddLine("field", *detail.field, &payload);
  if (detail.profile) AddLine("profile", *detail.profile, &payload);

  status->SetPayload(kTypeUrl, absl::Cord(payload));
}

}  // namespace

absl::string_view TruncateUtf8(absl::string_view text, size_t size) {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<uint8_t>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

std::string QuoteName(absl::string_view name) {
  const absl::string_view shown = TruncateUtf8(name, kMaxShownName);
  return absl::StrCat("\"", Printable(absl::Utf8SafeCEscape(shown)),
                      shown.size() < name.size() ? "...\"" : "\"");
}

absl::Status MakeError(absl::StatusCode code, absl::string_view message,
                       const ErrorDetail& detail) {
  std::vector<std::string> where;
  if (detail.tensor) {
    where.push_back(absl::StrCat("tensor ", QuoteName(*detail.tensor)));
  }
  if (detail.element) {
    where.push_back(absl::StrCat("element ", *detail.element));
  }
  if (detail.offset) where.push_back(absl::StrCat("offset ", *detail.offset));
  if (detail.limit) where.push_back(absl::StrCat("limit ", *detail.limit));
  std::string text(message);
  for (size_t i = 0; i < where.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? " (" : ", ", where[i]);
  }
  if (!where.empty()) text += ")";

  absl::Status status(code, text);
  Attach(detail, &status);
  return status;
}

absl::Status Reclassify(const absl::Status& cause, absl::StatusCode code,
                        absl::string_view reason, absl::string_view prefix) {
  ErrorDetail detail = GetErrorDetail(cause).value_or(ErrorDetail());
  detail.reason = std::string(reason);
  absl::Status status(code, absl::StrCat(prefix, cause.message()));
  Attach(detail, &status);
  return status;
}

std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kTypeUrl);
  if (!payload) return std::nullopt;
  ErrorDetail detail;
  const std::string text(*payload);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    std::string value;
    if (!absl::CUnescape(field.second, &value)) return std::nullopt;
    if (field.first == "reason") detail.reason = value;
    if (field.first == "tensor") detail.tensor = value;
    if (field.first == "offset") detail.offset = ToNumber(value);
    if (field.first == "element") detail.element = ToNumber(value);
    if (field.first == "limit") detail.limit = ToNumber(value);
    if (field.first == "field") detail.field = value;
    if (field.first == "profile") detail.profile = value;
  }
  return detail;
}

}  // namespace kvcompress
