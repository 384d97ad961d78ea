// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the codecs of grouped integers share: `int4`, `int8`, `int4-hadamard`.
// Consecutive elements share a binary16 scale; payloads are streams of blocks.
// Specified in core/FORMAT.md, section 5.

#ifndef KVCOMPRESS_CODECS_GROUPED_GROUPED_H_
#define KVCOMPRESS_CODECS_GROUPED_GROUPED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "codecs/block_codec.h"
#include "codecs/option_schema.h"
#include "kernels/kernels.h"
#include "kvcompress/codec.h"

namespace kvcompress {

class GroupedCodec : public BlockCodec {
 public:
  struct Options {
    std::string name;
    std::string description;
    int bits = 4;  // of a code: 4 or 8
    // Whether values are rotated along head_dim first.
    bool rotate = false;
    // Picks the kernels of a set for these codes.
    const kernels::GroupedKernels kernels::KernelSet::*kernels = nullptr;
  };

  explicit GroupedCodec(Options options);

  const CodecTraits& traits() const override { return traits_; }
  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override;
  std::vector<std::string> SelfTestParameters() const override;
  bool at_memory_speed() const override { return true; }
  Candidates AutoCandidates(Effort effort) const override;
  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters& parameters) const override;

 private:
  absl::StatusOr<BlockTensor> Tensor(
      const TensorSpec& spec, const CodecParameters& parameters) const override;

  struct Parameters {
    uint32_t group = 0;  // elements that share a scale
  };

  const Options options_;
  const OptionSchema<Parameters> schema_;
  CodecTraits traits_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_GROUPED_GROUPED_H_
