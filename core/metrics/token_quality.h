// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Distortion as attention sees it, for tensors [batch, heads, tokens,
// head_dim].
//
// RMSE, SNR and cosine flatter keys: a channel's constant offset carries no
// information, since softmax ignores what all tokens share, but it makes up
// most of the norm. And an average hides the few tokens that a codec ruined.
// Internal to the library; the meaning of each number is in
// kvcompress.v1.QualityMetrics.

#ifndef KVCOMPRESS_METRICS_TOKEN_QUALITY_H_
#define KVCOMPRESS_METRICS_TOKEN_QUALITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/kernels.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/metrics.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// Sums over one tensor, or over several pooled.
struct TokenSums {
  // Of a tensor that TokenAccumulator does not apply to, with its largest
  // error.
  static TokenSums Unknown(const TensorSpec& spec, double max_error);

  double centred_x2 = 0;  // of keys less their channel's mean
  double key_e2 = 0;
  double first_e2 = 0;  // of token 0
  uint64_t first_count = 0;
  // 1st percentile of per-token SNR, in dB; the least of the tensors pooled.
  // Nothing when every token of it is exact.
  std::optional<double> token_snr_db_p1;
  // As in Metrics.
  bool key_without_tokens = false;
  bool value_without_tokens = false;

  void Merge(const TokenSums& other);
};

// Fills in the metrics of tokens. Leaves all unset when no tensor had any.
void AddTokenMetrics(const TokenSums& sums, Metrics* metrics);

// Watches the values of one tensor stream by. Not thread safe.
class TokenAccumulator {
 public:
  // Longer rows are no tokens: without a bound, a shape alone could ask for any
  // amount of memory.
  static constexpr uint64_t kMaxHeadDim = 65536;

  // Whether a tensor of this type and shape has tokens to speak of.
  static bool Applies(const TensorSpec& spec);
  // Bytes that one takes at most, up to 2 MiB from the start and more as rows
  // come: 16 for every 100 of them. REQUIRES: Applies(spec).
  static uint64_t MemoryFor(const TensorSpec& spec);

  // REQUIRES: Applies(spec).
  explicit TokenAccumulator(const TensorSpec& spec);

  // Takes source bytes, and decoded bytes of the same elements; either may run
  // ahead of the other. The source bytes stay where they are until the next
  // call of AddDecoded, which keeps what it has no counterpart for.
  void AddSource(absl::string_view bytes) { source_.Add(bytes); }
  // Looks at the checkpoint, if there is one, and when that stops is of no more
  // use.
  void AddDecoded(absl::string_view bytes, Checkpoint* checkpoint = nullptr);

  // REQUIRES: all of the tensor was added, of both.
  TokenSums Compute();

 private:
  // Bytes that wait for their counterparts: those kept, and behind them others
  // that are still where they came from.
  class Lag {
   public:
    void Add(absl::string_view bytes) {
      Keep();
      borrowed_ = bytes;
    }
    // The contiguous rows at the front; empty only if there are none.
    absl::string_view Rows(size_t row_size);
    // Forgets bytes at the front. REQUIRES: Rows returned as many.
    void Drop(size_t size);
    void Keep();

   private:
    std::string kept_;
    size_t begin_ = 0;  // of what is left of them
    absl::string_view borrowed_;
  };

  void AddRows(const char* source, const char* decoded, size_t count);
  void BeginBlock(const char* source);
  void AddToken(const kernels::RowSums& row);
  void EndBlock();
  void KeepLeast();

  const bool key_;
  const DType dtype_;
  const kernels::MeasureRows measure_;
  const uint64_t tokens_;
  const size_t head_dim_;
  const size_t row_size_;  // bytes
  Lag source_;
  Lag decoded_;
  uint64_t token_ = 0;  // of the head under way
  // Sums of squares less squares of sums would leave nothing of a spread that
  // is small next to the mean. So keys are summed in blocks of tokens, as
  // differences to a block's first, and blocks are merged by their means (Chan,
  // Golub and LeVeque, "Updating formulae and a pairwise algorithm for
  // computing sample variances", 1979).
  std::vector<float> origins_;  // of the block
  std::vector<double> sums_of_block_;
  double squares_of_block_ = 0;
  std::vector<double> means_;  // of the head's tokens before the block
  double centred_ = 0;         // squares of these less their means
  // x2 / e2 of the rows that may be among the least `rank_`, those that are
  // exact left out: a tensor may have more rows than there should be memory.
  const uint64_t rank_;
  std::vector<double> least_;
  double bound_;  // what is not below it is not among them
  TokenSums sums_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_METRICS_TOKEN_QUALITY_H_
