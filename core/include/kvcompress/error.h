// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Errors that say where. Every error of the library is an absl::Status with a
// sentence for people and an ErrorDetail for programs, attached as a payload of
// the status so that it survives being passed on. Details never hold the
// contents of a tensor.

#ifndef KVCOMPRESS_ERROR_H_
#define KVCOMPRESS_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

struct ErrorDetail {
  // UPPER_SNAKE_CASE and stable: programs may branch on it.
  std::string reason;
  // Name of the tensor concerned.
  std::optional<std::string> tensor;
  // Byte position in the input where the rule is broken.
  std::optional<uint64_t> offset;
  // Index of the offending element within its tensor.
  std::optional<uint64_t> element;
  // The limit that was exceeded, in the unit of the message.
  std::optional<uint64_t> limit;
  // Path of the wrong field of a request, such as "options.codec".
  std::optional<std::string> field;
  // Digest of the profile concerned, such as one that is missing.
  std::optional<std::string> profile;
};

// A status with `detail` attached. The message is completed by the tensor and
// the offset where they are set: "... (tensor \"x\", offset 42)".
absl::Status MakeError(absl::StatusCode code, absl::string_view message,
                       const ErrorDetail& detail);

// `cause` under another code and reason, with `prefix` before its message. What
// it says of the place stays.
absl::Status Reclassify(const absl::Status& cause, absl::StatusCode code,
                        absl::string_view reason, absl::string_view prefix);

// The detail attached to `status`; nothing when there is none.
std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status);

// The first bytes of `text`, at most `size`, not ending within a character.
absl::string_view TruncateUtf8(absl::string_view text, size_t size);

// Names are cut to this many bytes wherever they are shown.
inline constexpr size_t kMaxShownName = 200;

// `name` made safe for logs and messages: cut to kMaxShownName bytes, control
// characters escaped, quoted.
std::string QuoteName(absl::string_view name);

// `text` without what would act on a terminal: control characters, characters
// that change the direction of text or are not seen, and what is not UTF-8
// become escapes as C has them. For all that people read and that was not
// written here, names of files first.
std::string Printable(absl::string_view text);

}  // namespace kvcompress

#endif  // KVCOMPRESS_ERROR_H_
