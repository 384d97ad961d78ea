// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// SHA-256, from OpenSSL. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_SHA256_H_
#define KVCOMPRESS_PROFILE_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

namespace kvcompress {

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(absl::string_view bytes);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PROFILE_SHA256_H_
