// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/errno_error.h"

#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace kvcompress {

absl::Status ErrnoError(int error, absl::string_view operation,
                        absl::string_view path) {
  std::string text = std::generic_category().message(error);
  if (!text.empty()) text[0] = absl::ascii_tolower(text[0]);
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(operation, " ", path, ": ", text));
}

}  // namespace kvcompress
