// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "metrics/token_quality.h"

#include <algorithm>
#include <cmath>

namespace kvcompress {
namespace {

// JSON has no infinity: this stands for an error without any signal.
constexpr double kNoSignalDb = -300;

double Decibels(double signal, double noise) {
  return signal == 0 ? kNoSignalDb
                     : std::max(kNoSignalDb, 10 * std::log10(signal / noise));
}

}  // namespace

void AddTokenMetrics(const TokenSums& keys, const TokenSums& all,
                     Metrics* metrics) {
  if (all.first_count == 0) return;
  if (keys.e2 > 0) {
    metrics->centred_snr_db = Decibels(keys.centred_x2, keys.e2);
  }
  metrics->token_snr_db_p1 = all.token_snr_db_p1;
  metrics->first_token_rmse =
      std::sqrt(all.first_e2 / static_cast<double>(all.first_count));
}

void TokenSums::Merge(const TokenSums& other) {
  centred_x2 += other.centred_x2;
  e2 += other.e2;
  first_e2 += other.first_e2;
  first_count += other.first_count;
  if (!token_snr_db_p1) {
    token_snr_db_p1 = other.token_snr_db_p1;
  } else if (other.token_snr_db_p1) {
    token_snr_db_p1 = std::min(*token_snr_db_p1, *other.token_snr_db_p1);
  }
}

void TokenAccumulator::Lag::Drop(size_t size) {
  begin_ += size;
  if (begin_ == bytes_.size()) {
    bytes_.clear();
    begin_ = 0;
  } else if (begin_ > bytes_.size() / 2) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
}

bool TokenAccumulator::Applies(const TensorSpec& spec) {
  return spec.shape.size() == 4 &&
         std::find(spec.shape.begin(), spec.shape.end(), 0) == spec.shape.end();
}

TokenAccumulator::TokenAccumulator(const TensorSpec& spec)
    : measure_(kernels::Active().row[static_cast<size_t>(spec.dtype)]),
      tokens_(spec.shape[2]),
      head_dim_(spec.shape[3]),
      row_size_(head_dim_ * DTypeSize(spec.dtype)),
      channel_x_(head_dim_),
      channel_x2_(head_dim_) {}

void TokenAccumulator::AddDecoded(absl::string_view bytes) {
  decoded_.append(bytes);
  const size_t rows = std::min(source_.size(), decoded_.size()) / row_size_;
  for (size_t row = 0; row < rows; ++row) {
    AddRow(source_.data() + row * row_size_, decoded_.data() + row * row_size_);
  }
  source_.Drop(rows * row_size_);
  decoded_.Drop(rows * row_size_);
}

void TokenAccumulator::AddRow(const char* source, const char* decoded) {
  // What is not finite only a lossless codec takes, and it has no error.
  const auto [x2, e2] =
      measure_(reinterpret_cast<const uint8_t*>(source),
               reinterpret_cast<const uint8_t*>(decoded), head_dim_,
               {.x = channel_x_.data(), .x2 = channel_x2_.data()});
  sums_.e2 += e2;
  if (token_ == 0) {
    sums_.first_e2 += e2;
    sums_.first_count += head_dim_;
  }
  if (e2 == 0) {
    ++exact_rows_;
  } else {
    token_snr_.push_back(static_cast<float>(Decibels(x2, e2)));
  }
  if (++token_ == tokens_) EndHead();
}

void TokenAccumulator::EndHead() {
  for (size_t c = 0; c < head_dim_; ++c) {
    const double mean_part =
        channel_x_[c] * channel_x_[c] / static_cast<double>(tokens_);
    sums_.centred_x2 += std::max(0.0, channel_x2_[c] - mean_part);
    channel_x_[c] = 0;
    channel_x2_[c] = 0;
  }
  token_ = 0;
}

TokenSums TokenAccumulator::Compute() {
  // Nearest rank: the first of the ordered rows that 1 % of them do not exceed.
  const uint64_t rows = exact_rows_ + token_snr_.size();
  const uint64_t rank = (rows + 99) / 100;
  if (rank > 0 && rank <= token_snr_.size()) {
    const auto nth = token_snr_.begin() + static_cast<int64_t>(rank - 1);
    std::nth_element(token_snr_.begin(), nth, token_snr_.end());
    sums_.token_snr_db_p1 = *nth;
  }
  return sums_;
}

}  // namespace kvcompress
