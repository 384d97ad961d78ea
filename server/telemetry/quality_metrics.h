// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What compression achieved and cost, by codec: ratio, bytes saved, distortion,
// levels, verdicts, time, and artefacts found damaged. The series of a codec
// are there from its first use on; those of failures and warnings from the
// start.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_QUALITY_METRICS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_QUALITY_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"
#include "kvcompress/warning.h"
#include "observer.h"

namespace kvcompress {

class QualityMetrics {
 public:
  // `registry` must outlive this.
  explicit QualityMetrics(prometheus::Registry* registry);

  // As in CallObserver. A cache without elements counts for nothing; an exact
  // one has no SNR. What names no known codec, reason or code is not counted.
  void Compressed(const CompressReport& report);
  void Saved(absl::string_view codec, uint64_t bytes);
  void CodecTime(absl::string_view codec, Stage stage, double seconds);
  void IntegrityFailure(absl::string_view reason);
  void Warned(absl::string_view code);

 private:
  using Counters = prometheus::Family<prometheus::Counter>;
  using Histograms = prometheus::Family<prometheus::Histogram>;
  static constexpr int kStageCount = 2;

  // Null until the codec is used.
  struct PerCodec {
    absl::string_view name;
    prometheus::Histogram* ratio = nullptr;
    prometheus::Histogram* value_bytes = nullptr;
    prometheus::Histogram* worst_snr = nullptr;
    // As AllMetrics(); null where that has no histogram.
    std::vector<prometheus::Histogram*> metrics;
    std::array<prometheus::Counter*, kQualityLevelCount> levels = {};
    prometheus::Counter* passed = nullptr;
    prometheus::Counter* failed = nullptr;
    prometheus::Counter* saved = nullptr;
    std::array<prometheus::Histogram*, kStageCount> seconds = {};
  };

  void AddFamilies(prometheus::Registry* registry);
  // "int4", also for "int4:64" or "int4+zstd:64"; null for an unknown codec.
  PerCodec* Find(absl::string_view codec);
  // All series of a codec at once, so that no quotient of two of them lacks
  // one; those of time are apart, for servers that only restore.
  void AddSeries(PerCodec* series) const;

  Histograms* ratio_;
  Histograms* value_bytes_;
  Histograms* worst_snr_;
  std::vector<Histograms*> metric_families_;
  Counters* levels_;
  Counters* verdicts_;
  Counters* saved_;
  Histograms* seconds_;
  std::array<prometheus::Counter*, std::size(kIntegrityReasons)> failures_;
  std::array<prometheus::Counter*, std::size(kWarningCodes)> warnings_;
  std::mutex mutex_;
  std::vector<PerCodec> codecs_;  // guarded by the mutex
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_QUALITY_METRICS_H_
