// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "request.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/artefact.h"
#include "kvcompress/patterns.h"
#include "kvcompress/rope.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/tensor.h"
#include "kvcompress/v1/compression_service.pb.h"

namespace kvcompress {
namespace {

// Indices of ParsedSize::Result::elements.
enum Limited { kTensors, kLayers, kValues };

std::vector<ElementLimit> Limits() {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  return {
      {"kvcompress.v1.TensorTable.tensors", "tensors.tensors", kMaxTensors,
       kInvalid, "TOO_MANY_TENSORS"},
      {"kvcompress.v1.CompressOptions.attention", "options.attention",
       kMaxAttentionLayers, kInvalid, "INVALID_ATTENTION"},
      {"kvcompress.v1.LayerAttention.octaves", "options.attention.octaves",
       kMaxAttentionValues, kInvalid, "INVALID_ATTENTION"},
      {"kvcompress.v1.TensorSpec.shape", "tensors.tensors.shape",
       kMaxTensors * kMaxRank, kInvalid, "RANK_TOO_LARGE"},
      {"kvcompress.v1.RopeParameters.embeddings", "options.rope.embeddings",
       kMaxRopeEmbeddings, kInvalid, "INVALID_OPTIONS"},
      {"kvcompress.v1.RopeParameters.layers", "options.rope.layers",
       kMaxRopeLayers, kInvalid, "INVALID_OPTIONS"},
      {"kvcompress.v1.TensorTable.metadata", "tensors.metadata", kMaxMetadata,
       kInvalid, "TOO_MUCH_METADATA"},
      {"kvcompress.v1.CompressOptions.labels", "options.labels", kMaxLabels,
       kInvalid, "INVALID_LABEL"},
      {"kvcompress.v1.DecompressOptions.expected_labels",
       "options.expected_labels", kMaxLabels, kInvalid, "INVALID_LABEL"},
      {"kvcompress.v1.CompressOptions.key_patterns", "options.key_patterns",
       kMaxPatterns, kInvalid, "INVALID_OPTIONS"},
      {"kvcompress.v1.CompressOptions.value_patterns", "options.value_patterns",
       kMaxPatterns, kInvalid, "INVALID_OPTIONS"},
      {"kvcompress.v1.DecompressOptions.tensors", "options.tensors",
       kMaxPatterns, kInvalid, "INVALID_OPTIONS"},
  };
}

// The text of a tensor in a header, less its name and its dimensions, in bytes.
constexpr uint64_t kTensorText = 100;
// For each byte of that text: it is written, and read again.
constexpr uint64_t kTextMemory = 16;
// A layer in a map, besides its values, in bytes.
constexpr uint64_t kLayerBytes = 128;

}  // namespace

std::unique_ptr<const ParsedSize> NewParsedSize(
    const google::protobuf::Descriptor& request) {
  return std::make_unique<const ParsedSize>(request, Limits());
}

RequestMemory MemoryFor(uint64_t wire, const ParsedSize::Result& parsed) {
  RequestMemory memory;
  memory.taking = parsed.bytes - std::min(parsed.bytes, wire);
  const uint64_t tensors = parsed.elements[kTensors];
  if (tensors > 0) {
    memory.taking += kTextMemory * (kTensorText * tensors + wire);
  }
  const uint64_t layers = parsed.elements[kLayers];
  if (layers > 0) {
    memory.kept =
        kLayerBytes * layers + sizeof(float) * parsed.elements[kValues];
    memory.taking += memory.kept;
  }
  return memory;
}

absl::Status CheckSmallRequest(const grpc::ByteBuffer& bytes,
                               const ParsedSize& size) {
  // Of what it may become, in bytes.
  constexpr uint64_t kMaxParsed = 1 << 20;
  if (bytes.Length() <= kMaxSmallRequest) {
    const absl::StatusOr<ParsedSize::Result> parsed =
        size.Of(bytes, kMaxParsed);
    if (!parsed.ok()) return parsed.status();
    if (parsed->bytes <= kMaxParsed) return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the request of ", bytes.Length(),
                                " bytes is too large for this method"),
                   {.reason = "INVALID_MESSAGE",
                    .limit = kMaxSmallRequest,
                    .field = "message"});
}

}  // namespace kvcompress
