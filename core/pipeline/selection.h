// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which tensors and tokens of an artefact are given back. Internal to the
// library.

#ifndef KVCOMPRESS_PIPELINE_SELECTION_H_
#define KVCOMPRESS_PIPELINE_SELECTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/artefact.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// For each name of a tensor whether it matches one of the shell patterns, or
// there is none. INVALID_ARGUMENT for more than kMaxPatterns, kMaxPatternBytes
// or kMaxPatternWork, and for one that matches no tensor, where there are
// tensors: it is taken for a mistake.
absl::StatusOr<std::vector<bool>> SelectTensors(
    const std::vector<std::string>& patterns,
    absl::Span<const absl::string_view> names);

using TokenRange = std::pair<uint64_t, uint64_t>;  // half-open

// Narrows the shape of a tensor [batch, heads, tokens, head_dim] to a range of
// tokens. INVALID_ARGUMENT for another rank or a range that is empty or does
// not lie within the tokens.
absl::Status NarrowToTokens(TokenRange tokens, TensorSpec* spec);

// Passes on the bytes of a range of tokens from a tensor that streams by.
class TokenFilter {
 public:
  // REQUIRES: NarrowToTokens accepts `spec`.
  TokenFilter(const TensorSpec& spec, TokenRange tokens);

  void Append(absl::string_view bytes, std::string* out);

  // Whether an element of [begin, end), of the flattened tensor, is passed on.
  bool Overlaps(uint64_t begin, uint64_t end) const;

 private:
  const uint64_t element_size_;
  const uint64_t period_;  // bytes of all tokens of one head
  const uint64_t begin_;   // bytes within the period
  const uint64_t end_;
  uint64_t position_ = 0;  // within the period
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_SELECTION_H_
