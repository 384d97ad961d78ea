// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Predicts the sizes of the candidates of `auto` for a tensor from those of
// another one like it.

#ifndef KVCOMPRESS_CODECS_AUTO_PREDICTION_H_
#define KVCOMPRESS_CODECS_AUTO_PREDICTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcompress/codec.h"
#include "kvcompress/metrics.h"

namespace kvcompress {

// Of a candidate, where it was tried and did not refuse the values.
struct AutoFinding {
  uint64_t size = 0;  // bytes
  // Nothing where it was given up, having grown beyond the best.
  std::optional<Metrics> metrics;
};

// Of all candidates, in their rows.
struct AutoFindings : EncoderFindings {
  std::vector<std::vector<std::optional<AutoFinding>>> rows;
  double power = 0;  // mean square of the elements
  // The one that was kept.
  size_t row = 0;
  size_t column = 0;

  const AutoFinding& kept() const { return *rows[row][column]; }
};

// The smallest size, in bytes, with which a candidate that produced `earlier`
// is likely to hold the thresholds for a tensor of `elements` elements whose
// mean square is `power`; nothing where it is not likely to hold them. `all` is
// what was found with `earlier`, and `kept` what the candidate that was kept
// then produces for this tensor.
std::optional<uint64_t> LikelySize(const AutoFinding& earlier,
                                   const AutoFindings& all,
                                   const AutoFinding& kept, uint64_t elements,
                                   double power,
                                   const QualityThresholds& thresholds);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_AUTO_PREDICTION_H_
