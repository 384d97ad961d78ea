// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Shorthands for registering Prometheus families. Internal to telemetry.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_FAMILIES_H_
#define KVCOMPRESS_SERVER_TELEMETRY_FAMILIES_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "absl/types/span.h"

namespace kvcompress {

inline auto& CounterFamily(prometheus::Registry* registry, const char* name,
                           const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

inline auto& GaugeFamily(prometheus::Registry* registry, const char* name,
                         const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry);
}

inline auto& HistogramFamily(prometheus::Registry* registry,
                             const std::string& name, const std::string& help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
}

// Upper bounds of buckets, ascending; the one without bound is implied.
inline prometheus::Histogram::BucketBoundaries Boundaries(
    absl::Span<const double> bounds) {
  return {bounds.begin(), bounds.end()};
}

// A series that is on the page from its first use on. Thread safe once it is
// bound.
template <typename Metric>
class OnFirstUse {
 public:
  // `make` adds the series to its family. Threads may call it at the same time:
  // a family returns one series for equal labels.
  void Bind(std::function<Metric*()> make) { make_ = std::move(make); }

  Metric* operator->() {
    Metric* series = series_.load(std::memory_order_acquire);
    if (series == nullptr) {
      series = make_();
      series_.store(series, std::memory_order_release);
    }
    return series;
  }

 private:
  std::function<Metric*()> make_;
  std::atomic<Metric*> series_ = nullptr;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_FAMILIES_H_
