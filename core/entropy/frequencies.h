// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The static order-0 model of coded bytes: how often each byte value occurs, of
// 4,096. Specified in core/FORMAT.md, "Coded bytes". Pure and thread safe.
// Internal to the library.

#ifndef KVCOMPRESS_ENTROPY_FREQUENCIES_H_
#define KVCOMPRESS_ENTROPY_FREQUENCIES_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress::coding {

inline constexpr uint32_t kFrequencyBits = 12;
inline constexpr uint32_t kFrequencyTotal = 1u << kFrequencyBits;

// By byte value. Counts below 2^32 in all.
using ByteCounts = std::array<uint32_t, 256>;
// By byte value; the sum is kFrequencyTotal.
using Frequencies = std::array<uint16_t, 256>;

ByteCounts CountBytes(absl::string_view bytes);

// Scales counts to frequencies; what occurs keeps a frequency of at least 1.
// REQUIRES: some count is not 0.
Frequencies NormalizeCounts(const ByteCounts& counts);

void AppendFrequencies(const Frequencies& frequencies, std::string* out);

// Reads what AppendFrequencies writes from the beginning of `*bytes` and
// removes it. DATA_LOSS for any other form, or another sum. Not trusted.
absl::Status ConsumeFrequencies(absl::string_view* bytes,
                                Frequencies* frequencies);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_ENTROPY_FREQUENCIES_H_
