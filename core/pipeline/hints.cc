// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/hints.h"

#include "absl/strings/numbers.h"

namespace kvcompress {

bool IsRopeTheta(double theta) {
  return theta == 0 || (theta >= 1 && theta <= 1e12);
}

EncodeHints HintsFrom(
    const CompressOptions& options,
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  EncodeHints hints{.rope_theta = options.rope_theta, .effort = options.effort};
  for (const auto& [key, value] : metadata) {
    double theta;
    if (key == "rope_theta" && !hints.rope_theta &&
        absl::SimpleAtod(value, &theta) && IsRopeTheta(theta)) {
      hints.rope_theta = theta;
    }
  }
  return hints;
}

}  // namespace kvcompress
