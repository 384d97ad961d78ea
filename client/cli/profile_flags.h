// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The flags of profiles.

#ifndef KVCOMPRESS_CLIENT_CLI_PROFILE_FLAGS_H_
#define KVCOMPRESS_CLIENT_CLI_PROFILE_FLAGS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/flags.h"
#include "client/cli/raw_flags.h"

namespace kvcompress::cli {

// In Go's words.
absl::Status InvalidValue(absl::string_view value, absl::string_view flag,
                          absl::string_view why = "parse error");

// A whole number from `least` to `most`, where the flag is given.
absl::Status SetCount(const std::optional<std::string>& text,
                      absl::string_view flag, size_t least, size_t most,
                      size_t* count);

// Sets what flags say of a profile that is used, or trained. The mode is set.
absl::Status SetProfile(const RawFlags& raw, Flags* flags);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_PROFILE_FLAGS_H_
