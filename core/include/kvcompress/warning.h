// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is worth knowing about a result that is valid all the same.

#ifndef KVCOMPRESS_WARNING_H_
#define KVCOMPRESS_WARNING_H_

#include <string>

#include "absl/strings/string_view.h"

namespace kvcompress {

// See kvcompress.v1.Warning.
struct Warning {
  // One of kWarningCodes.
  std::string code;
  // One sentence for people. It has no text that a peer has chosen, so logs may
  // have it as it is.
  std::string message;
  // The tensor it is about; empty for the whole cache.
  std::string tensor;
};

// Stable. Metrics have a series for each.
inline constexpr absl::string_view kWarningCodes[] = {
    "NO_ROLES",        // a codec that treats keys and values apart got neither
    "NOT_FINITE",      // values that no codec quantizes were kept without loss
    "LAYOUT_SUSPECT",  // dimensions are not what they are taken for
    "ROPE_SUSPECT",    // keys do not fit the rotation that is declared
    "PROFILE_AMBIGUOUS",  // several profiles fit, and none was used
    "PROFILE_POOR_FIT",   // keys are not like those of the profile's training
    "PROFILE_POOR_RATE",  // bounds take more bits than without the profile
    "PROFILE_UNUSUAL",    // a cache takes more bits than the profile expects
    "PROFILE_TRAINING_CACHE",  // the profile was trained on the cache
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_WARNING_H_
