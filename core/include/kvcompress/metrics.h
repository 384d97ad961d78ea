// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Distortion between source values x and decoded values y, with e = y - x, and
// bounds on it. What the metrics are called, whose they are and which bound
// goes with which: kvcompress/metric_table.h.
//
// Sums are kept in double precision per block of elements, and blocks are added
// with Neumaier's compensated summation (Z. Angew. Math. Mech. 54, 1974), so
// the result neither depends on how the input was cut into chunks nor loses
// digits on long tensors. No single number shows whether a cache is good: read
// RMSE next to the largest error, and SNR next to the worst tensor's.

#ifndef KVCOMPRESS_METRICS_H_
#define KVCOMPRESS_METRICS_H_

#include <cstdint>
#include <optional>
#include <set>

#include "absl/strings/string_view.h"

namespace kvcompress {

// What a kernel returns for one block.
struct DistortionSums {
  uint64_t count = 0;
  double sum_x2 = 0;
  double sum_y2 = 0;
  double sum_xy = 0;
  double sum_e2 = 0;
  double sum_abs_e = 0;
  double max_abs_e = 0;
  double max_abs_x = 0;
};

// Sums of squares below it have lost digits, or are 0: the squares of errors
// below 1e-146, which only F64 has.
inline constexpr double kLeastSquares = 1e-292;

// How much is measured of a tensor; see kvcompress.v1.MetricsLevel.
enum class MetricsLevel {
  kFull,   // the default
  kBasic,  // not what tokens and channels lose
};

// See kvcompress.v1.QualityMetrics, which has the same fields and meanings.
// Nothing is: not known for these tensors, or exact.
struct Metrics {
  uint64_t elements = 0;
  double mse = 0;
  double rmse = 0;
  double mae = 0;
  double max_error = 0;
  std::optional<double> snr_db;   // nothing: exact
  std::optional<double> psnr_db;  // nothing: exact
  double cosine_similarity = 1;

  // Only for tensors [batch, heads, tokens, head_dim], of at most 65,536
  // channels.
  std::optional<double> centred_snr_db;   // keys; nothing also when exact
  std::optional<double> token_snr_db_p1;  // nothing also when exact
  std::optional<double> first_token_rmse;

  // Whether a key, or a value, has an error but another shape: then no bound
  // holds on what only tensors with tokens have.
  bool key_without_tokens = false;
  bool value_without_tokens = false;
};

// A bound holds when the metric is strictly on the good side of it. Nothing is:
// not checked. The defaults are those usual for INT4 caches (KVQuant, arXiv
// 2401.18079).
struct QualityThresholds {
  std::optional<double> max_rmse = 0.10;
  std::optional<double> max_error = 0.5;
  std::optional<double> min_snr_db = 18;
  std::optional<double> min_cosine_similarity = 0.99;
  // The first is checked on keys, the second on keys and values, and on others
  // where it is known. An error whose metric is not known, for the shape of its
  // tensor, does not keep the bound.
  std::optional<double> min_centred_snr_db;
  std::optional<double> min_token_snr_db_p1;

  // Names of the bounds that a request sets, as in kvcompress/metric_table.h;
  // the others are defaults.
  std::set<absl::string_view> requested = {};
};

// Not thread safe.
class DistortionAccumulator {
 public:
  void Add(const DistortionSums& block);
  // Adds all that `other` holds.
  void Merge(const DistortionAccumulator& other);
  Metrics Compute() const;

 private:
  class Sum {
   public:
    void Add(double value);
    void Merge(const Sum& other);
    double value() const { return sum_ + compensation_; }

   private:
    double sum_ = 0;
    double compensation_ = 0;
  };

  uint64_t count_ = 0;
  Sum x2_, y2_, xy_, e2_, abs_e_;
  double max_abs_e_ = 0;
  double max_abs_x_ = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_METRICS_H_
