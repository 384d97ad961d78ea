// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A small part of a cache, to measure something on in a few milliseconds.

#ifndef KVCOMPRESS_CLIENT_CLI_SAMPLE_H_
#define KVCOMPRESS_CLIENT_CLI_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace kvcompress::cli {

struct Sample {
  std::string file;  // a safetensors file of its own
  size_t tensors = 0;
};

// The first tokens of a few tensors of a safetensors file, from the middle of
// the file, with its metadata: about `most` bytes at most, and as many of each.
// NOT_FOUND where no tensor is [batch, heads, tokens, head_dim]; else the
// errors of reading a file and its header.
absl::StatusOr<Sample> SampleOf(const std::string& path, uint64_t most);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_SAMPLE_H_
