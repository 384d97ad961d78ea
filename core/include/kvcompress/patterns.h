// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Limits of the shell patterns that choose tensors by name. A pattern is as
// fnmatch(3) of POSIX without flags has it, byte by byte; a `[` without its `]`
// is itself.

#ifndef KVCOMPRESS_PATTERNS_H_
#define KVCOMPRESS_PATTERNS_H_

#include <cstdint>

namespace kvcompress {

// Most patterns in a list, and bytes of all of them.
inline constexpr uint64_t kMaxPatterns = 1024;
inline constexpr uint64_t kMaxPatternBytes = uint64_t{1} << 20;
// Limit on the work of patterns with wildcards: their characters divided by 64,
// times the bytes of all names. At the limit, matching takes ten milliseconds.
// Patterns without wildcards take no steps.
inline constexpr uint64_t kMaxPatternWork = uint64_t{1} << 24;

}  // namespace kvcompress

#endif  // KVCOMPRESS_PATTERNS_H_
