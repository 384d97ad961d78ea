// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What compression achieved and cost, by codec: ratio, distortion, levels,
// time, and artefacts found damaged. Every series exists from the start.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_QUALITY_METRICS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_QUALITY_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <iterator>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"
#include "kvcompress/warning.h"
#include "observer.h"

namespace kvcompress {

class QualityMetrics {
 public:
  // Has series for each of AllCodecs(). `registry` must outlive this.
  explicit QualityMetrics(prometheus::Registry* registry);

  // As in CallObserver. A cache without elements counts for nothing; an exact
  // one has no SNR. What names no known codec, reason or code is not counted.
  void Compressed(const CompressReport& report);
  void CodecTime(absl::string_view codec, Stage stage, double seconds);
  void IntegrityFailure(absl::string_view reason);
  void Warned(absl::string_view code);

 private:
  static constexpr int kStageCount = 2;
  static constexpr int kLevelCount = 4;

  struct PerCodec {
    absl::string_view name;
    prometheus::Histogram* ratio;
    prometheus::Histogram* value_bytes;
    prometheus::Histogram* worst_snr;
    // As AllMetrics(); null where that has no histogram.
    std::vector<prometheus::Histogram*> metrics;
    prometheus::Counter* passed;
    prometheus::Counter* failed;
    std::array<prometheus::Histogram*, kStageCount> seconds;
  };

  // The series of "int4", also for "int4:64" or "int4+zstd:64"; null for an
  // unknown codec.
  const PerCodec* Find(absl::string_view codec) const;

  std::vector<PerCodec> codecs_;
  std::array<prometheus::Counter*, kLevelCount> levels_;
  std::array<prometheus::Counter*, std::size(kIntegrityReasons)> failures_;
  std::array<prometheus::Counter*, std::size(kWarningCodes)> warnings_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_QUALITY_METRICS_H_
