// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the pipeline says it needs, so that a server can plan. Internal to the
// library.

#ifndef KVCOMPRESS_PIPELINE_WORKING_MEMORY_H_
#define KVCOMPRESS_PIPELINE_WORKING_MEMORY_H_

#include <cstdint>

namespace kvcompress {

// Memory for each byte of a header: its text, what it is parsed into, and a
// report for each tensor.
inline constexpr uint64_t kHeaderMemory = 16;

// What one more thread works on the blocks of a tensor in, in bytes: at most,
// and for each byte of a small tensor.
inline constexpr uint64_t kMaxPlaceMemory = 16 << 20;
inline constexpr uint64_t kPlaceMemoryPerByte = 8;

// Bytes that take longer to encode or to decode, at the speed of memory, than
// to hand to another thread.
inline constexpr uint64_t kWorthwhile = 512 << 10;

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_WORKING_MEMORY_H_
