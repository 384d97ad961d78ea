// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The static tables of a group: for each preset the class of each component
// that codes the training data in the fewest bits. Internal to the library.

#ifndef KVCOMPRESS_PROFILE_TRAINING_CLASSES_H_
#define KVCOMPRESS_PROFILE_TRAINING_CLASSES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace kvcompress::profile {

// Of one preset. Not thread safe.
class ClassFinder {
 public:
  // `variances` are those of the components.
  ClassFinder(float step, absl::Span<const float> variances);

  // Adds tokens [count, components] in the components of the group.
  void Add(absl::Span<const float> projected, size_t count);

  std::vector<uint8_t> Classes() const;

 private:
  // Quanta beyond count as this.
  static constexpr int32_t kMax = 64;
  using Histogram = std::array<uint32_t, 2 * kMax + 1>;

  const float step_;
  std::vector<uint8_t> expected_;  // from the variances
  std::vector<int32_t> threshold_offsets_;
  std::vector<float> zeros_;
  std::vector<Histogram> histograms_;
  std::vector<int32_t> quanta_;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_TRAINING_CLASSES_H_
