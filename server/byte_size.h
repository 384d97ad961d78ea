// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Numbers of bytes as people write them in flags.

#ifndef KVCOMPRESS_SERVER_BYTE_SIZE_H_
#define KVCOMPRESS_SERVER_BYTE_SIZE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace kvcompress {

// A whole number, bare or with KiB, MiB, GiB or TiB. Nothing for decimal units:
// whoever writes MB may mean either.
std::optional<uint64_t> ParseByteSize(absl::string_view text);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_BYTE_SIZE_H_
