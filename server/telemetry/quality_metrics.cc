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
  auto& ratio = HistogramFamily(
      registry, "kvcompress_compression_ratio",
      "2 bytes x elements / bytes of the artefact, of each cache compressed or "
      "measured.");
  auto& value_bytes = HistogramFamily(
      registry, "kvcompress_value_bytes",
      "Bytes of the artefact / elements, of each cache compressed or "
      "measured.");
  auto& worst_snr = HistogramFamily(
      registry, "kvcompress_worst_tensor_snr_decibels",
      "Signal-to-noise ratio of the worst tensor of each cache; exact ones are "
      "left out.");
  std::vector<prometheus::Family<prometheus::Histogram>*> families;
  for (const MetricTraits& metric : AllMetrics()) {
    families.push_back(
        metric.histogram.empty()
            ? nullptr
            : &HistogramFamily(registry,
                               absl::StrCat("kvcompress_", metric.histogram),
                               std::string(metric.histogram_help)));
  }
  auto& seconds =
      HistogramFamily(registry, "kvcompress_codec_seconds",
                      "Time one call spent in a codec, in seconds, by stage.");
  auto& verdicts = CounterFamily(
      registry, "kvcompress_verdicts_total",
      "Caches compressed or measured: passed when every tensor is within the "
      "thresholds of its request.");
  for (const Codec* codec : AllCodecs()) {
    const std::string& name = codec->traits().name;
    const prometheus::Labels labels = {{"codec", name}};
    PerCodec series = {
        .name = name,
        .ratio = &ratio.Add(labels, Boundaries(kRatioBuckets)),
        .value_bytes = &value_bytes.Add(labels, Boundaries(kValueBytesBuckets)),
        .worst_snr =
            &worst_snr.Add(labels, Boundaries(FindMetric("snr_db").buckets)),
        .metrics = {},
        .passed = &verdicts.Add({{"codec", name}, {"verdict", "passed"}}),
        .failed = &verdicts.Add({{"codec", name}, {"verdict", "failed"}}),
        .seconds = {}};
    for (size_t i = 0; i < families.size(); ++i) {
      series.metrics.push_back(
          families[i] == nullptr
              ? nullptr
              : &families[i]->Add(labels, Boundaries(AllMetrics()[i].buckets)));
    }
    series.seconds[static_cast<int>(Stage::kEncode)] = &seconds.Add(
        {{"codec", name}, {"stage", "encode"}}, Boundaries(kSecondsBuckets));
    series.seconds[static_cast<int>(Stage::kDecode)] = &seconds.Add(
        {{"codec", name}, {"stage", "decode"}}, Boundaries(kSecondsBuckets));
    codecs_.push_back(std::move(series));
  }

  auto& levels = CounterFamily(
      registry, "kvcompress_quality_total",
      "Caches compressed or measured, by the quality level reached.");
  for (int i = 0; i < kLevelCount; ++i) {
    levels_[i] = &levels.Add({{"level", std::string(QualityLevelName(
                                            static_cast<QualityLevel>(i)))}});
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

const QualityMetrics::PerCodec* QualityMetrics::Find(
    absl::string_view codec) const {
  const absl::string_view name = codec.substr(0, codec.find_first_of("+:"));
  for (const PerCodec& series : codecs_) {
    if (series.name == name) return &series;
  }
  return nullptr;
}

void QualityMetrics::Compressed(const CompressReport& report) {
  const PerCodec* series = Find(report.codec);
  if (series == nullptr || report.elements == 0) return;
  series->ratio->Observe(report.compression_ratio);
  series->value_bytes->Observe(report.bits_per_value / 8);
  if (report.worst_tensor >= 0) {
    const std::optional<double> snr =
        report.tensors[static_cast<size_t>(report.worst_tensor)].metrics.snr_db;
    if (snr) series->worst_snr->Observe(*snr);
  }
  for (size_t i = 0; i < series->metrics.size(); ++i) {
    const std::optional<double> value = AllMetrics()[i].Value(report.metrics);
    if (value && series->metrics[i] != nullptr) {
      series->metrics[i]->Observe(*value);
    }
  }
  levels_[static_cast<int>(report.verdict.level)]->Increment();
  (report.tensors_failed == 0 ? series->passed : series->failed)->Increment();
}

void QualityMetrics::CodecTime(absl::string_view codec, Stage stage,
                               double seconds) {
  const PerCodec* series = Find(codec);
  if (series == nullptr) return;
  series->seconds[static_cast<int>(stage)]->Observe(seconds);
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
