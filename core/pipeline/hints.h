// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Hints for encoders from the options and the metadata of an input. Internal to
// the library.

#ifndef KVCOMPRESS_PIPELINE_HINTS_H_
#define KVCOMPRESS_PIPELINE_HINTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"

namespace kvcompress {

// Checks what options say of rotary position embeddings. INVALID_ARGUMENT.
absl::Status ValidateRope(const CompressOptions& options);

// Options go before metadata; metadata that makes no sense says nothing. The
// thresholds are not filled in.
EncodeHints HintsFrom(
    const CompressOptions& options,
    const std::vector<std::pair<std::string, std::string>>& metadata);

// Whether a tensor can have the rotary embedding that was declared, where it
// has keys and the codec cares. INVALID_ARGUMENT.
absl::Status CheckRope(const Codec& codec, const TensorSpec& spec,
                       const EncodeHints& hints);

// The position of the first token, if metadata declare it under "first_token".
// INVALID_ARGUMENT for a value that is no number below 2^32.
absl::StatusOr<std::optional<uint64_t>> FirstPosition(
    const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_HINTS_H_
