// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/group_alone.h"

#include <memory>
#include <optional>
#include <utility>

#include "pipeline/attention.h"
#include "status/macros.h"

namespace kvcompress {

absl::StatusOr<std::vector<AloneTensor>> EncodeAlone(
    const CodecSpec& codec, absl::Span<const AloneSource> sources,
    uint64_t most, Checkpoint* checkpoint) {
  std::vector<AloneTensor> tensors;
  AttentionHints attention;
  uint64_t size = 0;
  for (const AloneSource& source : sources) {
    if (Stops(checkpoint)) return checkpoint->status();
    EncodeHints hints = source.hints;
    attention.Tell(source.spec, {}, &hints);
    hints.source = source.bytes;
    hints.buffers = nullptr;
    hints.checkpoint = checkpoint;
    KVC_ASSIGN_OR_RETURN(
        const std::unique_ptr<TensorEncoder> encoder,
        codec.codec->NewEncoder(source.spec, codec.parameters, hints));
    AloneTensor tensor;
    KVC_RETURN_IF_ERROR(
        encoder->Append(source.bytes, &tensor.payload, &tensor.decoded));
    KVC_RETURN_IF_ERROR(encoder->Finish(&tensor.payload, &tensor.decoded));
    size += tensor.payload.size();
    if (size >= most) return std::vector<AloneTensor>();
    KeyHints told = encoder->key_hints();
    tensor.not_finite = told.not_finite;
    attention.Learn(source.spec, std::move(told));
    tensor.codec = encoder->chosen() != nullptr ? *encoder->chosen() : codec;
    tensor.quality.distortion = encoder->distortion();
    if (encoder->token_sums() != nullptr) {
      tensor.quality.tokens = *encoder->token_sums();
    }
    tensors.push_back(std::move(tensor));
  }
  // Only now it is known that these are used.
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::optional<TokenSums>& tokens = tensors[i].quality.tokens;
    if (tokens) continue;
    KVC_ASSIGN_OR_RETURN(tokens,
                         MeasureTokens(sources[i].spec, sources[i].bytes,
                                       tensors[i].decoded, checkpoint));
  }
  return tensors;
}

}  // namespace kvcompress
