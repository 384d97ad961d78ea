// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Shorthands for registering Prometheus families. Internal to telemetry.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_FAMILIES_H_
#define KVCOMPRESS_SERVER_TELEMETRY_FAMILIES_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

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

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_FAMILIES_H_
