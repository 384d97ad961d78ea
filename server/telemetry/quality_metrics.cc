// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/quality_metrics.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/codec.h"
#include "kvcompress/metric_table.h"
#include "kvcompress/quality.h"
#include "telemetry/families.h"

namespace kvcompress {
namespace {

constexpr double kRatioBuckets[] = {1,   1.25, 1.5, 1.75, 2, 2.5, 3,  3.25,
                                    3.5, 3.75, 4,   5,    6, 8,   12, 16};
constexpr double kValueBytesBuckets[] = {
    0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375, 0.5,
    0.5625, 0.625, 0.75,   1,    1.0625, 1.25,  1.5,    2};
constexpr double kSecondsBuckets[] = {.0001, .0005, .001, .005, .01, .05, .1,
                                      .5,    1,     5,    10,   30,  60,  120};

}  // namespace

QualityMetrics::QualityMetrics(prometheus::Registry* registry) {
  AddFamilies(registry);
  for (const Codec* codec : AllCodecs()) {
    codecs_.emplace_back().name = codec->traits().name;
  }
  auto& failures =
      CounterFamily(registry, "kvcompress_integrity_failures_total",
                    "Artefacts that failed a check on decode, by reason.");
  for (size_t i = 0; i < failures_.size(); ++i) {
    failures_[i] =
        &failures.Add({{"reason", std::string(kIntegrityReasons[i])}});
  }
  auto& warnings = CounterFamily(
      registry, "kvcompress_warnings_total",
      "Warnings in reports of caches compressed or measured, by code.");
  for (size_t i = 0; i < warnings_.size(); ++i) {
    warnings_[i] = &warnings.Add({{"code", std::string(kWarningCodes[i])}});
  }
}

void QualityMetrics::AddFamilies(prometheus::Registry* registry) {
  ratio_ = &HistogramFamily(
      registry, "kvcompress_compression_ratio",
      "2 bytes x elements / bytes of the artefact, of each cache compressed or "
      "measured.");
  value_bytes_ = &HistogramFamily(
      registry, "kvcompress_value_bytes",
      "Bytes of the artefact / elements, of each cache compressed or "
      "measured.");
  worst_snr_ = &HistogramFamily(
      registry, "kvcompress_worst_tensor_snr_decibels",
      "Signal-to-noise ratio of the worst tensor of each cache; exact ones are "
      "left out.");
  for (const MetricTraits& metric : AllMetrics()) {
    metric_families_.push_back(
        metric.histogram.empty()
            ? nullptr
            : &HistogramFamily(registry,
                               absl::StrCat("kvcompress_", metric.histogram),
                               std::string(metric.histogram_help)));
  }
  levels_ = &CounterFamily(
      registry, "kvcompress_quality_total",
      "Caches compressed or measured, by the quality level reached.");
  verdicts_ = &CounterFamily(
      registry, "kvcompress_verdicts_total",
      "Caches compressed or measured: passed when every tensor is within the "
      "thresholds of its request.");
  saved_ = &CounterFamily(
      registry, "kvcompress_saved_bytes_total",
      "Bytes of tensor data - bytes of the artefact, of caches compressed.");
  seconds_ =
      &HistogramFamily(registry, "kvcompress_codec_seconds",
                       "Time one call spent in a codec, in seconds, by stage.");
}

QualityMetrics::PerCodec* QualityMetrics::Find(absl::string_view codec) {
  const absl::string_view name = codec.substr(0, codec.find_first_of("+:"));
  for (PerCodec& series : codecs_) {
    if (series.name == name) return &series;
  }
  return nullptr;
}

void QualityMetrics::AddSeries(PerCodec* series) const {
  if (series->ratio != nullptr) return;
  const std::string name(series->name);
  const prometheus::Labels labels = {{"codec", name}};
  series->value_bytes =
      &value_bytes_->Add(labels, Boundaries(kValueBytesBuckets));
  series->worst_snr =
      &worst_snr_->Add(labels, Boundaries(FindMetric("snr_db").buckets));
  series->metrics.clear();
  for (size_t i = 0; i < metric_families_.size(); ++i) {
    series->metrics.push_back(
        metric_families_[i] == nullptr
            ? nullptr
            : &metric_families_[i]->Add(labels,
                                        Boundaries(AllMetrics()[i].buckets)));
  }
  for (int i = 0; i < kQualityLevelCount; ++i) {
    const auto level = QualityLevelName(static_cast<QualityLevel>(i));
    series->levels[i] =
        &levels_->Add({{"codec", name}, {"level", std::string(level)}});
  }
  series->passed = &verdicts_->Add({{"codec", name}, {"verdict", "passed"}});
  series->failed = &verdicts_->Add({{"codec", name}, {"verdict", "failed"}});
  series->saved = &saved_->Add(labels);
  series->ratio = &ratio_->Add(labels, Boundaries(kRatioBuckets));
}

void QualityMetrics::Compressed(const CompressReport& report) {
  const std::lock_guard lock(mutex_);
  PerCodec* series = Find(report.codec);
  if (series == nullptr || report.elements == 0) return;
  AddSeries(series);
  series->ratio->Observe(report.compression_ratio);
  series->value_bytes->Observe(report.bits_per_value / 8);
  std::optional<double> lowest;
  for (const TensorReport& tensor : report.tensors) {
    const std::optional<double> snr = tensor.metrics.snr_db;
    if (snr && (!lowest || *snr < *lowest)) lowest = snr;
  }
  if (lowest) series->worst_snr->Observe(*lowest);
  for (size_t i = 0; i < series->metrics.size(); ++i) {
    const std::optional<double> value = AllMetrics()[i].Value(report.metrics);
    if (value && series->metrics[i] != nullptr) {
      series->metrics[i]->Observe(*value);
    }
  }
  series->levels[static_cast<int>(report.verdict.level)]->Increment();
  (report.tensors_failed == 0 ? series->passed : series->failed)->Increment();
}

void QualityMetrics::Saved(absl::string_view codec, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  PerCodec* series = Find(codec);
  if (series == nullptr) return;
  AddSeries(series);
  series->saved->Increment(static_cast<double>(bytes));
}

void QualityMetrics::CodecTime(absl::string_view codec, Stage stage,
                               double seconds) {
  const std::lock_guard lock(mutex_);
  PerCodec* found = Find(codec);
  if (found == nullptr) return;
  prometheus::Histogram*& series = found->seconds[static_cast<int>(stage)];
  if (series == nullptr) {
    series = &seconds_->Add(
        {{"codec", std::string(found->name)},
         {"stage", stage == Stage::kEncode ? "encode" : "decode"}},
        Boundaries(kSecondsBuckets));
  }
  series->Observe(seconds);
}

void QualityMetrics::IntegrityFailure(absl::string_view reason) {
  for (size_t i = 0; i < failures_.size(); ++i) {
    if (kIntegrityReasons[i] == reason) {
      failures_[i]->Increment();
      return;
    }
  }
}

void QualityMetrics::Warned(absl::string_view code) {
  for (size_t i = 0; i < warnings_.size(); ++i) {
    if (kWarningCodes[i] == code) warnings_[i]->Increment();
  }
}

}  // namespace kvcompress
