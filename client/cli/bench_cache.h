// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A cache that is made up, to load a server with.

#ifndef KVCOMPRESS_CLIENT_CLI_BENCH_CACHE_H_
#define KVCOMPRESS_CLIENT_CLI_BENCH_CACHE_H_

#include <cstdint>
#include <string>

namespace kvcompress::cli {

// The least size of a generated cache, in bytes: 16 tokens of one layer.
inline constexpr uint64_t kMinGeneratedCache = 64 << 10;

// A safetensors file with the keys and values of up to 32 layers, each BF16 [1,
// 8, tokens, 128] as in Llama 3 8B: tensor data of at most `size` bytes, and of
// more than size - 128 KiB. Channels have means and spreads of their own,
// tokens are correlated with those before them, and keys are rotated (RoPE,
// base 500,000), so that codecs do the work that they do for a model's cache.
// How far they compress it says nothing of a model. The same bytes in each run.
// REQUIRES: size >= kMinGeneratedCache.
std::string GenerateCache(uint64_t size);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_BENCH_CACHE_H_
