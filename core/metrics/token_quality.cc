// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "metrics/token_quality.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/types/span.h"
#include "kernels/elements.h"
#include "kernels/lane_sums.h"

namespace kvcompress {
namespace {

// JSON has no infinity: this stands for an error without any signal.
constexpr double kNoSignalDb = -300;

// Tokens of a block, which are measured at once where they lie together.
constexpr size_t kBlockTokens = 64;
// About so many bytes are measured between two looks at a checkpoint.
constexpr size_t kLookBytes = 1 << 20;

// Nearest rank: the first of the ordered rows that 1 % of them do not exceed.
uint64_t RankOf(const TensorSpec& spec) {
  return (spec.shape[0] * spec.shape[1] * spec.shape[2] + 99) / 100;
}

double Decibels(double signal, double noise) {
  return signal == 0 ? kNoSignalDb
                     : std::max(kNoSignalDb, 10 * std::log10(signal / noise));
}

}  // namespace

void AddTokenMetrics(const TokenSums& sums, Metrics* metrics) {
  metrics->key_without_tokens = sums.key_without_tokens;
  metrics->value_without_tokens = sums.value_without_tokens;
  if (sums.first_count == 0) return;
  if (sums.key_e2 > 0) {
    metrics->centred_snr_db = Decibels(sums.centred_x2, sums.key_e2);
  }
  metrics->token_snr_db_p1 = sums.token_snr_db_p1;
  metrics->first_token_rmse =
      std::sqrt(sums.first_e2 / static_cast<double>(sums.first_count));
}

TokenSums TokenSums::Unknown(const TensorSpec& spec, double max_error) {
  TokenSums sums;
  if (max_error > 0) {
    sums.key_without_tokens = spec.role == TensorRole::kKey;
    sums.value_without_tokens = spec.role == TensorRole::kValue;
  }
  return sums;
}

void TokenSums::Merge(const TokenSums& other) {
  centred_x2 += other.centred_x2;
  key_e2 += other.key_e2;
  first_e2 += other.first_e2;
  first_count += other.first_count;
  key_without_tokens |= other.key_without_tokens;
  value_without_tokens |= other.value_without_tokens;
  if (!token_snr_db_p1) {
    token_snr_db_p1 = other.token_snr_db_p1;
  } else if (other.token_snr_db_p1) {
    token_snr_db_p1 = std::min(*token_snr_db_p1, *other.token_snr_db_p1);
  }
}

absl::string_view TokenAccumulator::Lag::Rows(size_t row_size) {
  absl::string_view bytes = borrowed_;
  if (begin_ < kept_.size()) {
    // The last row kept may go on in what is borrowed.
    const size_t begun = (kept_.size() - begin_) % row_size;
    const absl::string_view rest =
        borrowed_.substr(0, begun == 0 ? 0 : row_size - begun);
    kept_.append(rest.data(), rest.size());
    borrowed_.remove_prefix(rest.size());
    bytes = absl::string_view(kept_).substr(begin_);
  }
  return bytes.substr(0, bytes.size() / row_size * row_size);
}

void TokenAccumulator::Lag::Drop(size_t size) {
  if (begin_ == kept_.size()) return borrowed_.remove_prefix(size);
  begin_ += size;
  if (begin_ == kept_.size()) {
    kept_.clear();
    begin_ = 0;
  }
}

void TokenAccumulator::Lag::Keep() {
  if (begin_ > kept_.size() / 2) {
    kept_.erase(0, begin_);
    begin_ = 0;
  }
  kept_.append(borrowed_.data(), borrowed_.size());
  borrowed_ = {};
}

bool TokenAccumulator::Applies(const TensorSpec& spec) {
  return IsNumber(spec.dtype) && spec.shape.size() == 4 &&
         spec.shape[3] <= kMaxHeadDim &&
         std::find(spec.shape.begin(), spec.shape.end(), 0) == spec.shape.end();
}

uint64_t TokenAccumulator::MemoryFor(const TensorSpec& spec) {
  // A sum, a mean and an origin for each channel, and a row that is not whole,
  // of both sides.
  const uint64_t of_row =
      2 * sizeof(double) + sizeof(float) + 2 * DTypeSize(spec.dtype);
  return spec.shape[3] * of_row + 2 * sizeof(double) * RankOf(spec);
}

TokenAccumulator::TokenAccumulator(const TensorSpec& spec)
    : key_(spec.role == TensorRole::kKey),
      dtype_(spec.dtype),
      measure_(kernels::Active().measure[static_cast<size_t>(spec.dtype)]),
      tokens_(spec.shape[2]),
      head_dim_(spec.shape[3]),
      row_size_(head_dim_ * DTypeSize(spec.dtype)),
      origins_(head_dim_),
      sums_of_block_(head_dim_),
      means_(head_dim_),
      rank_(RankOf(spec)),
      bound_(std::numeric_limits<double>::infinity()) {}

void TokenAccumulator::AddDecoded(absl::string_view bytes,
                                  Checkpoint* checkpoint) {
  const size_t most =
      std::max(kLookBytes / (row_size_ * kBlockTokens), size_t{1}) * row_size_ *
      kBlockTokens;
  decoded_.Add(bytes);
  while (!Stops(checkpoint)) {
    const absl::string_view source = source_.Rows(row_size_);
    const absl::string_view decoded = decoded_.Rows(row_size_);
    const size_t size = std::min({source.size(), decoded.size(), most});
    if (size == 0) break;
    AddRows(source.data(), decoded.data(), size / row_size_);
    source_.Drop(size);
    decoded_.Drop(size);
  }
  source_.Keep();
  decoded_.Keep();
}

void TokenAccumulator::AddRows(const char* source, const char* decoded,
                               size_t count) {
  kernels::RowSums rows[kBlockTokens];
  while (count > 0) {
    const size_t begun = token_ % kBlockTokens;
    if (key_ && begun == 0) BeginBlock(source);
    // Channels are those of one head.
    const size_t part = std::min(
        {count, kBlockTokens - begun, static_cast<size_t>(tokens_ - token_)});
    measure_(reinterpret_cast<const uint8_t*>(source),
             reinterpret_cast<const uint8_t*>(decoded), part, head_dim_,
             key_ ? kernels::ChannelSums{origins_.data(), sums_of_block_.data()}
                  : kernels::ChannelSums(),
             rows);
    for (size_t i = 0; i < part; ++i) AddToken(rows[i]);
    source += part * row_size_;
    decoded += part * row_size_;
    count -= part;
  }
}

// What is not finite only a lossless codec takes, and it has no error.
void TokenAccumulator::AddToken(const kernels::RowSums& row) {
  if (key_) sums_.key_e2 += row.e2;
  if (token_ == 0) {
    sums_.first_e2 += row.e2;
    sums_.first_count += head_dim_;
  }
  if (row.e2 > 0) {
    const double ratio = row.x2 / row.e2;
    if (ratio < bound_) least_.push_back(ratio);
    if (least_.size() == 2 * rank_) KeepLeast();
  }
  ++token_;
  if (key_) {
    squares_of_block_ += row.d2;
    if (token_ == tokens_ || token_ % kBlockTokens == 0) EndBlock();
  }
  if (token_ == tokens_) token_ = 0;
}

void TokenAccumulator::BeginBlock(const char* source) {
  LoadElements(dtype_, reinterpret_cast<const uint8_t*>(source),
               absl::MakeSpan(origins_));
  for (float& origin : origins_) {
    if (!std::isfinite(origin)) origin = 0;
  }
}

void TokenAccumulator::EndBlock() {
  const uint64_t of_block = (token_ - 1) % kBlockTokens + 1;
  const double count = static_cast<double>(of_block);
  const double before = static_cast<double>(token_ - of_block);
  const double share = count / static_cast<double>(token_);
  // Lanes, so that the order of sums is that of no machine's vectors.
  double own[kernels::kSumLanes] = {};      // squares of means less origins
  double between[kernels::kSumLanes] = {};  // squares of means less means
  for (size_t c = 0; c < head_dim_; ++c) {
    const size_t lane = c % kernels::kSumLanes;
    const double own_mean = sums_of_block_[c] / count;
    const double step = (origins_[c] - means_[c]) + own_mean;
    own[lane] += own_mean * own_mean;
    between[lane] += step * step;
    means_[c] += step * share;
    sums_of_block_[c] = 0;
  }
  for (size_t lane = 1; lane < kernels::kSumLanes; ++lane) {
    own[0] += own[lane];
    between[0] += between[lane];
  }
  centred_ += std::max(0.0, squares_of_block_ - count * own[0]);
  centred_ += before * share * between[0];
  squares_of_block_ = 0;
  if (token_ < tokens_) return;
  sums_.centred_x2 += centred_;
  centred_ = 0;
  std::fill(means_.begin(), means_.end(), 0.0);
}

// Forgets all but the least. REQUIRES: there are as many.
void TokenAccumulator::KeepLeast() {
  const auto last = least_.begin() + static_cast<int64_t>(rank_ - 1);
  std::nth_element(least_.begin(), last, least_.end());
  bound_ = *last;
  least_.resize(rank_);
}

TokenSums TokenAccumulator::Compute() {
  if (least_.size() >= rank_) {
    KeepLeast();
    sums_.token_snr_db_p1 = static_cast<float>(Decibels(bound_, 1));
  }
  return sums_;
}

}  // namespace kvcompress
