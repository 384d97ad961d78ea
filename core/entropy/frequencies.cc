// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/frequencies.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace kvcompress::coding {
namespace {

// A frequency from here on takes two bytes.
constexpr uint32_t kLong = 128;

}  // namespace

ByteCounts CountBytes(absl::string_view bytes) {
  // Four tables, so that runs of one value do not wait for their own count.
  ByteCounts counts[4] = {};
  for (size_t i = 0; i < bytes.size(); ++i) {
    ++counts[i % 4][static_cast<uint8_t>(bytes[i])];
  }
  for (size_t v = 0; v < 256; ++v) {
    counts[0][v] += counts[1][v] + counts[2][v] + counts[3][v];
  }
  return counts[0];
}

Frequencies NormalizeCounts(const ByteCounts& counts) {
  const uint64_t n = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  Frequencies frequencies = {};
  uint32_t sum = 0;
  for (size_t v = 0; v < 256; ++v) {
    if (counts[v] == 0) continue;
    const uint64_t f =
        (uint64_t{2} * kFrequencyTotal * counts[v] + n) / (2 * n);
    frequencies[v] = static_cast<uint16_t>(std::max<uint64_t>(f, 1));
    sum += frequencies[v];
  }
  while (sum != kFrequencyTotal) {
    uint16_t& largest =
        *std::max_element(frequencies.begin(), frequencies.end());
    const int step = sum < kFrequencyTotal ? 1 : -1;
    largest = static_cast<uint16_t>(largest + step);
    sum += step;
  }
  return frequencies;
}

void AppendFrequencies(const Frequencies& frequencies, std::string* out) {
  for (size_t v = 0; v < 256; ++v) {
    const uint32_t f = frequencies[v];
    if (f == 0) {
      const size_t first = v;
      while (v < 255 && frequencies[v + 1] == 0) ++v;
      out->push_back(0);
      out->push_back(static_cast<char>(v - first));
    } else if (f < kLong) {
      out->push_back(static_cast<char>(f));
    } else {
      out->push_back(static_cast<char>(kLong + (f >> 8)));
      out->push_back(static_cast<char>(f & 255));
    }
  }
}

absl::Status ConsumeFrequencies(absl::string_view* bytes,
                                Frequencies* frequencies) {
  frequencies->fill(0);
  const size_t size = bytes->size();
  const auto next = [bytes] {
    const uint8_t byte = static_cast<uint8_t>(bytes->front());
    bytes->remove_prefix(1);
    return uint32_t{byte};
  };
  const auto broken = [&](absl::string_view rule) {
    return absl::DataLossError(
        absl::StrCat("the frequencies ", rule, " before offset ",
                     size - bytes->size(), " of the coded bytes"));
  };
  uint32_t sum = 0;
  bool after_zeros = false;
  for (size_t v = 0; v < 256; ++v) {
    if (bytes->empty()) return broken("are incomplete");
    uint32_t f = next();
    if (f == 0 || f >= kLong) {
      if (bytes->empty()) return broken("are incomplete");
      const uint32_t second = next();
      if (f == 0) {
        v += second;
        if (after_zeros || v > 255) return broken("have a wrong run of zeros");
        after_zeros = true;
        continue;
      }
      f = (f - kLong) << 8 | second;
      if (f < kLong) return broken("have one that a byte can hold");
    }
    after_zeros = false;
    sum += f;
    (*frequencies)[v] = static_cast<uint16_t>(f);
    if (sum > kFrequencyTotal) break;
  }
  if (sum != kFrequencyTotal) return broken("do not sum to 4096");
  return absl::OkStatus();
}

}  // namespace kvcompress::coding
