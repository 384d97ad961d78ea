// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Profiles: which there are, what they are used for, and which are missing. A
// profile has series of its own under its name, which the operator gave its
// file, while it is loaded: at most kMaxProfiles of them.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_PROFILE_METRICS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_PROFILE_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "profile_set.h"

namespace kvcompress {

class ProfileMetrics {
 public:
  // `registry` must outlive this.
  explicit ProfileMetrics(prometheus::Registry* registry);

  // The profiles that there are from now on.
  void Set(const ProfileSet& profiles);
  // A file was refused, or the directory.
  void Refused();

  // As in CallObserver. A cache counts for the profile that it was made with;
  // where it has several names, for the first.
  void Compressed(const CompressReport& report);
  void Decompressed(const DecompressReport& report);
  // A call ended with the reason of an error, or with none.
  void CallFailed(absl::string_view reason);

 private:
  using Counters = prometheus::Family<prometheus::Counter>;
  struct Series {
    prometheus::Counter* compressed = nullptr;
    prometheus::Counter* decompressed = nullptr;
    prometheus::Counter* value_bytes = nullptr;
    prometheus::Counter* artefact_bytes = nullptr;
    prometheus::Histogram* fit = nullptr;
  };

  Series Add(const std::string& name);
  void Remove(const Series& series);

  prometheus::Gauge* loaded_;
  prometheus::Gauge* loaded_bytes_;
  prometheus::Gauge* refused_files_;
  prometheus::Counter* refused_;
  prometheus::Counter* missing_;
  prometheus::Counter* unknown_;
  prometheus::Counter* mismatch_;
  Counters* caches_;
  Counters* value_bytes_;
  Counters* artefact_bytes_;
  prometheus::Family<prometheus::Histogram>* fit_;
  std::mutex mutex_;
  // Guarded by the mutex.
  std::map<std::string, Series> by_name_;
  std::map<std::string, std::string> names_;  // by digest
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_PROFILE_METRICS_H_
