// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/profile_metrics.h"

#include <cstdint>
#include <set>

#include "telemetry/families.h"

namespace kvcompress {
namespace {

// Below 0.5 reports warn.
constexpr double kFits[] = {0.25, 0.5, 0.7, 0.8, 0.9, 1};

}  // namespace

ProfileMetrics::ProfileMetrics(prometheus::Registry* registry) {
  loaded_ =
      &GaugeFamily(registry, "kvcompress_profiles", "Profiles that are loaded.")
           .Add({});
  loaded_bytes_ = &GaugeFamily(registry, "kvcompress_profile_bytes",
                               "Memory of the profiles that are loaded.")
                       .Add({});
  refused_files_ =
      &GaugeFamily(registry, "kvcompress_profiles_refused",
                   "Files of the profile directory that are refused as they "
                   "are.")
           .Add({});
  refused_ = &CounterFamily(registry, "kvcompress_profile_refusals_total",
                            "Files of the profile directory that were refused "
                            "when they were read.")
                  .Add({});
  auto& failures =
      CounterFamily(registry, "kvcompress_profile_failures_total",
                    "Calls that failed for want of a profile: of an artefact "
                    "that needs it (missing), or of a request that names it "
                    "(unknown), or that no group of it fits (mismatch).");
  missing_ = &failures.Add({{"reason", "missing"}});
  unknown_ = &failures.Add({{"reason", "unknown"}});
  mismatch_ = &failures.Add({{"reason", "mismatch"}});
  caches_ = &CounterFamily(registry, "kvcompress_profile_caches_total",
                           "Caches compressed or measured, and restored, with "
                           "a profile, by its name.");
  value_bytes_ = &CounterFamily(
      registry, "kvcompress_profile_value_bytes_total",
      "2 bytes x elements of the caches compressed or measured with a profile, "
      "by its name.");
  artefact_bytes_ = &CounterFamily(
      registry, "kvcompress_profile_artefact_bytes_total",
      "Bytes of the artefacts of these caches, by the name of the profile.");
  fit_ = &HistogramFamily(
      registry, "kvcompress_profile_fit",
      "How well the keys of these caches fit the profile, by its name: 1 where "
      "they are like those of its training, 0 where they are of another "
      "model.");
}

ProfileMetrics::Series ProfileMetrics::Add(const std::string& name) {
  return {.compressed =
              &caches_->Add({{"profile", name}, {"direction", "compress"}}),
          .decompressed =
              &caches_->Add({{"profile", name}, {"direction", "decompress"}}),
          .value_bytes = &value_bytes_->Add({{"profile", name}}),
          .artefact_bytes = &artefact_bytes_->Add({{"profile", name}}),
          .fit = &fit_->Add({{"profile", name}}, Boundaries(kFits))};
}

void ProfileMetrics::Remove(const Series& series) {
  caches_->Remove(series.compressed);
  caches_->Remove(series.decompressed);
  value_bytes_->Remove(series.value_bytes);
  artefact_bytes_->Remove(series.artefact_bytes);
  fit_->Remove(series.fit);
}

void ProfileMetrics::Set(const ProfileSet& profiles) {
  loaded_->Set(static_cast<double>(profiles.loaded().size()));
  loaded_bytes_->Set(static_cast<double>(profiles.memory()));
  refused_files_->Set(
      static_cast<double>(profiles.refused().size() + profiles.left_out()));
  const std::lock_guard lock(mutex_);
  names_.clear();
  std::set<std::string> kept;
  for (const LoadedProfile& each : profiles.loaded()) {
    names_.emplace(each.profile->id().digest, each.name);
    kept.insert(each.name);
    if (by_name_.count(each.name) == 0) by_name_[each.name] = Add(each.name);
  }
  for (auto each = by_name_.begin(); each != by_name_.end();) {
    if (kept.count(each->first) != 0) {
      ++each;
      continue;
    }
    Remove(each->second);
    each = by_name_.erase(each);
  }
}

void ProfileMetrics::Refused() { refused_->Increment(); }

void ProfileMetrics::Compressed(const CompressReport& report) {
  if (!report.profile) return;
  const std::lock_guard lock(mutex_);
  const auto name = names_.find(report.profile->id.digest);
  if (name == names_.end()) return;
  const Series& series = by_name_.at(name->second);
  series.compressed->Increment();
  series.value_bytes->Increment(2 * static_cast<double>(report.elements));
  series.artefact_bytes->Increment(static_cast<double>(report.compressed_size));
  if (report.profile->fit) series.fit->Observe(*report.profile->fit);
}

void ProfileMetrics::Decompressed(const DecompressReport& report) {
  if (!report.profile) return;
  const std::lock_guard lock(mutex_);
  const auto name = names_.find(report.profile->id.digest);
  if (name == names_.end()) return;
  by_name_.at(name->second).decompressed->Increment();
}

void ProfileMetrics::CallFailed(absl::string_view reason) {
  if (reason == "PROFILE_MISSING") missing_->Increment();
  if (reason == "PROFILE_UNKNOWN") unknown_->Increment();
  if (reason == "PROFILE_MISMATCH") mismatch_->Increment();
}

}  // namespace kvcompress
