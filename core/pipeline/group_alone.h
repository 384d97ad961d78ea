// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The tensors of a group, each coded by `auto`. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_GROUP_ALONE_H_
#define KVCOMPRESS_PIPELINE_GROUP_ALONE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"
#include "pipeline/group_members.h"

namespace kvcompress {

// A tensor that was coded by itself.
struct AloneTensor {
  CodecSpec codec;
  std::string payload;
  std::string decoded;
  MemberQuality quality;
  bool not_finite = false;  // see KeyHints
};

// What one is coded from.
struct AloneSource {
  TensorSpec spec;
  absl::string_view bytes;
  EncodeHints hints;
};

// Codes tensors by a codec. None where their payloads together have `most`
// bytes or more: it ends as soon as that is known. The error of the codec, or
// of the checkpoint, which may be null.
absl::StatusOr<std::vector<AloneTensor>> EncodeAlone(
    const CodecSpec& codec, absl::Span<const AloneSource> sources,
    uint64_t most, Checkpoint* checkpoint);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_GROUP_ALONE_H_
