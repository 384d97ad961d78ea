// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The bases of a tensor: runs of blocks of a part of the heads share theirs.
// For encoders only.

#ifndef KVCOMPRESS_CODECS_KLT_RUN_BASES_H_
#define KVCOMPRESS_CODECS_KLT_RUN_BASES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "codecs/klt/block_encoder.h"
#include "codecs/klt/geometry.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/tensor.h"
#include "tensor/workers.h"
#include "transform/loadings.h"

namespace kvcompress::klt {

// The most basis vectors of a group by the tokens of a block: more are not
// worth their bits.
size_t VectorsFor(TensorRole role, uint64_t tokens);

// Not thread safe. Where the checkpoint stops, bases are missing.
class RunBases {
 public:
  // Both outlive it; the checkpoint may be null.
  RunBases(const Geometry& geometry, Checkpoint* checkpoint)
      : geometry_(geometry), checkpoint_(checkpoint) {}

  // Tokens of a run of blocks, or hardly fewer.
  static uint64_t RunTokens(const Geometry& geometry) {
    return geometry.tokens() / geometry.token_parts() *
           std::min(kRun, geometry.token_parts());
  }

  // That bases are found from; 0 where they are too few for the basis of a head
  // of many channels, or there are no blocks.
  static uint64_t TokensOf(const Geometry& geometry) {
    if (!geometry.codable()) return 0;
    const uint64_t tokens = RunTokens(geometry);
    const bool many = geometry.channels() > coding::kMaxJointDimensions;
    return many && 2 * tokens < geometry.channels() ? 0 : tokens;
  }

  // Measures all blocks, and finds the principal components, at most `vectors`
  // of a group.
  void Analyze(absl::Span<BlockEncoder> encoders, size_t vectors,
               Workers* workers, AtPlaces<EncoderMemory>* memory);

  // Makes bases for steps near this one. REQUIRES: Analyze.
  void MakeFor(double step, Workers* workers);
  // For which they were made.
  double step() const { return step_; }

  const Bases& Of(size_t block) const { return bases_[run_of_[block]]; }
  // Whether a block has those of the block before it.
  bool SameAsBefore(size_t block) const {
    return block > 0 && run_of_[block] == run_of_[block - 1];
  }

 private:
  static constexpr uint64_t kRun = 8;  // blocks

  // A group of the blocks of a run: what is analyzed at once.
  struct GroupOfRun {
    size_t run = 0;
    size_t group = 0;
    size_t first_block = 0;
    coding::Loadings loadings;
  };

  const Geometry& geometry_;
  Checkpoint* const checkpoint_;
  std::vector<GroupOfRun> groups_;  // of one run after the other
  std::vector<uint64_t> run_tokens_;
  std::vector<Bases> bases_;
  double step_ = 0;
  std::vector<size_t> run_of_;  // of each block
};

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_RUN_BASES_H_
