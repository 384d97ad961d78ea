// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Covariance of the channels of a group over any number of tokens. Internal to
// the library.

#ifndef KVCOMPRESS_PROFILE_TRAINING_COVARIANCE_H_
#define KVCOMPRESS_PROFILE_TRAINING_COVARIANCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace kvcompress::profile {

// Tokens that are added at once, so that sums of products fit 31 bits.
inline constexpr size_t kCovarianceTokens = 256;

// Sums over integers of 12 bits: values less an origin, in units. What is
// beyond is limited to it. Not thread safe.
class Covariance {
 public:
  Covariance(std::vector<float> origins, std::vector<float> units);

  // Adds rows [count, channels], at most kCovarianceTokens.
  void Add(absl::Span<const float> values, size_t count);

  // Of each channel.
  std::vector<float> Means() const;
  // In squared units, [channels, channels], symmetric. Ends it.
  std::vector<float> Take();

 private:
  size_t channels() const { return origins_.size(); }

  const std::vector<float> origins_;
  const std::vector<float> units_;
  uint64_t tokens_ = 0;
  std::vector<int64_t> sums_;
  std::vector<float> products_;  // the columns from each row on
  std::vector<int16_t> left_;
  std::vector<int16_t> pairs_;
  std::vector<int32_t> product_;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_TRAINING_COVARIANCE_H_
