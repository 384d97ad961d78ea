// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/identity.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

absl::Status DataLoss(absl::string_view message, const ErrorDetail& detail) {
  return MakeError(absl::StatusCode::kDataLoss, message, detail);
}

}  // namespace

absl::Status CheckIdentity(const DecompressOptions& options,
                           const ArtefactHeader& header) {
  const absl::string_view digest = options.expected_payload_digest;
  if (!digest.empty() && digest != header.checksum) {
    return DataLoss(
        "the artefact is not the one expected: its payload_digest differs",
        {.reason = "IDENTITY_MISMATCH",
         .field = "options.expected_payload_digest"});
  }
  for (const auto& [key, value] : options.expected_labels) {
    const auto found = header.labels.find(key);
    if (found == header.labels.end() || found->second != value) {
      return DataLoss(
          absl::StrCat(
              "the artefact is not the one expected: label ", QuoteName(key),
              found == header.labels.end() ? " is missing" : " differs"),
          {.reason = "IDENTITY_MISMATCH", .field = "options.expected_labels"});
    }
  }
  return absl::OkStatus();
}

}  // namespace kvcompress
