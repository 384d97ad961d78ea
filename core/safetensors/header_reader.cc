// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"

namespace kvcompress {
namespace {

constexpr size_t kLengthSize = 8;

uint64_t LittleEndian64(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = kLengthSize; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return value;
}

absl::Status CheckLength(uint64_t length, uint64_t max_header_bytes) {
  const std::string announced = absl::StrCat(
      "parse header: the file announces a header of ", length, " bytes");
  if (length > kMaxSafetensorsHeader) {
    return MakeError(absl::StatusCode::kInvalidArgument, announced,
                     {.reason = "HEADER_TOO_LARGE",
                      .offset = 0,
                      .limit = kMaxSafetensorsHeader});
  }
  if (length > max_header_bytes) {
    return MakeError(
        absl::StatusCode::kOutOfRange, announced,
        {.reason = "HEADER_TOO_LARGE", .offset = 0, .limit = max_header_bytes});
  }
  if (length < 2) {
    return MakeError(absl::StatusCode::kInvalidArgument, announced,
                     {.reason = "HEADER_TOO_SMALL", .offset = 0});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SafetensorsHeaderReader::Append(absl::string_view* bytes) {
  const auto take = [&](size_t size) {
    const size_t taken = std::min(bytes->size(), size - raw_.size());
    raw_.append(bytes->data(), taken);
    bytes->remove_prefix(taken);
  };
  if (raw_.size() < kLengthSize) {
    take(kLengthSize);
    if (raw_.size() < kLengthSize) return absl::OkStatus();
    json_size_ = LittleEndian64(raw_);
    if (absl::Status status = CheckLength(json_size_, max_header_bytes_);
        !status.ok()) {
      return status;
    }
  }
  take(kLengthSize + json_size_);
  if (raw_.size() > kLengthSize && raw_[kLengthSize] != '{') {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        "parse header: invalid JSON: the header does not begin with '{'",
        {.reason = "INVALID_HEADER", .offset = kLengthSize});
  }
  return absl::OkStatus();
}

absl::Status SafetensorsHeaderReader::TruncatedError() const {
  const std::string message =
      raw_.size() < kLengthSize
          ? absl::StrCat("parse header: the input ends after ", raw_.size(),
                         " of the ", kLengthSize,
                         " bytes of the header's length")
          : absl::StrCat("parse header: the input ends after ",
                         raw_.size() - kLengthSize, " of the ", json_size_,
                         " bytes of the header");
  return MakeError(absl::StatusCode::kInvalidArgument, message,
                   {.reason = "TRUNCATED", .offset = raw_.size()});
}

}  // namespace kvcompress
