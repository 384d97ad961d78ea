// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What callers, and keys, report of the attention that tokens get. Internal to
// the library.

#ifndef KVCOMPRESS_PIPELINE_ATTENTION_H_
#define KVCOMPRESS_PIPELINE_ATTENTION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kvcompress/artefact.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// CompressOptions::attention: octaves of the tokens, by layer.
using LayerAttention = std::map<uint32_t, std::vector<float>>;

// INVALID_ARGUMENT for what is not a number from -64 to 64.
absl::Status ValidateAttention(const LayerAttention& attention);

// INVALID_ARGUMENT when the codec has no use for it, a layer has no tensor, or
// one with another number of tokens.
absl::Status CheckAttention(const LayerAttention& attention,
                            const CodecTraits& traits,
                            const std::vector<ArtefactTensor>& tensors);

// Passes the hints of keys on each token to the values of their layer if these
// come next. Not thread safe.
class AttentionHints {
 public:
  // Sets in `hints` what is known of the tokens of a tensor.
  void Tell(const TensorSpec& spec, const LayerAttention& given,
            EncodeHints* hints) const;
  // Takes what the encoder of a tensor found.
  void Learn(const TensorSpec& spec, KeyHints told);

 private:
  std::optional<uint32_t> layer_;  // of the last keys
  std::vector<float> from_keys_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_ATTENTION_H_
