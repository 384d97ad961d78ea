// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/quality_metrics.h"

#include <optional>
#include <string>

#include "kvcompress/codec.h"
#include "kvcompress/quality.h"
#include "telemetry/families.h"

namespace kvcompress {
namespace {

// Bounds of the quality levels and of the default thresholds are among the
// boundaries (core/include/kvcompress/quality.h), so that a dashboard can read
// off the share of caches on either side.
constexpr double kRatioBuckets[] = {1,   1.25, 1.5, 1.75, 2, 2.5, 3,  3.25,
                                    3.5, 3.75, 4,   5,    6, 8,   12, 16};
constexpr double kValueBytesBuckets[] = {
    0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375, 0.5,
    0.5625, 0.625, 0.75,   1,    1.0625, 1.25,  1.5,    2};
constexpr double kSnrBuckets[] = {0,  5,  10, 12, 15, 18, 20, 22,
                                  25, 30, 35, 40, 50, 60, 80, 100};
constexpr double kCosineBuckets[] = {0.5,     0.9,     0.95,     0.98,   0.985,
                                     0.99,    0.992,   0.994,    0.995,  0.996,
                                     0.997,   0.998,   0.999,    0.9997, 0.9999,
                                     0.99995, 0.99999, 0.999999, 1};
constexpr double kRmseBuckets[] = {0,    0.0001, 0.0003, 0.001, 0.003, 0.01,
                                   0.02, 0.03,   0.05,   0.075, 0.1,   0.2,
                                   0.5,  1,      2,      5};
constexpr double kSecondsBuckets[] = {.0001, .0005, .001, .005, .01, .05, .1,
                                      .5,    1,     5,    10,   30,  60,  120};

}  // namespace

QualityMetrics::QualityMetrics(prometheus::Registry* registry) {
  auto& ratio = HistogramFamily(
      registry, "kvcompress_compression_ratio",
      "2 bytes x elements / bytes of the artefact, of each cache compressed or "
      "measured.");
  auto& snr = HistogramFamily(registry, "kvcompress_snr_decibels",
                              "Signal-to-noise ratio of each cache, pooled; "
                              "exact results are left out.");
  auto& value_bytes = HistogramFamily(
      registry, "kvcompress_value_bytes",
      "Bytes of the artefact / elements, of each cache compressed or "
      "measured.");
  auto& worst_snr = HistogramFamily(
      registry, "kvcompress_worst_tensor_snr_decibels",
      "Signal-to-noise ratio of the worst tensor of each cache; exact ones are "
      "left out.");
  auto& centred_snr = HistogramFamily(
      registry, "kvcompress_centred_snr_decibels",
      "Signal-to-noise ratio of each cache's keys without the mean over tokens "
      "of each channel, pooled; exact results are left out.");
  auto& token_snr_p1 = HistogramFamily(
      registry, "kvcompress_token_snr_p1_decibels",
      "1st percentile of the signal-to-noise ratios of single tokens of single "
      "heads, the lowest of each cache's tensors; exact results are left out.");
  auto& first_token_rmse = HistogramFamily(
      registry, "kvcompress_first_token_rmse",
      "RMSE of the first token of each cache, in the unit of its values.");
  auto& cosine = HistogramFamily(registry, "kvcompress_cosine_similarity",
                                 "Cosine similarity of each cache, pooled.");
  auto& rmse = HistogramFamily(
      registry, "kvcompress_rmse",
      "Root of the mean squared error of each cache, pooled, in the unit of "
      "its values.");
  auto& seconds =
      HistogramFamily(registry, "kvcompress_codec_seconds",
                      "Time one call spent in a codec, in seconds, by stage.");
  for (const Codec* codec : AllCodecs()) {
    const std::string& name = codec->traits().name;
    const prometheus::Labels labels = {{"codec", name}};
    PerCodec series = {
        .name = name,
        .ratio = &ratio.Add(labels, Boundaries(kRatioBuckets)),
        .value_bytes = &value_bytes.Add(labels, Boundaries(kValueBytesBuckets)),
        .snr = &snr.Add(labels, Boundaries(kSnrBuckets)),
        .worst_snr = &worst_snr.Add(labels, Boundaries(kSnrBuckets)),
        .centred_snr = &centred_snr.Add(labels, Boundaries(kSnrBuckets)),
        .token_snr_p1 = &token_snr_p1.Add(labels, Boundaries(kSnrBuckets)),
        .cosine = &cosine.Add(labels, Boundaries(kCosineBuckets)),
        .rmse = &rmse.Add(labels, Boundaries(kRmseBuckets)),
        .first_token_rmse =
            &first_token_rmse.Add(labels, Boundaries(kRmseBuckets)),
        .seconds = {}};
    series.seconds[static_cast<int>(Stage::kEncode)] = &seconds.Add(
        {{"codec", name}, {"stage", "encode"}}, Boundaries(kSecondsBuckets));
    series.seconds[static_cast<int>(Stage::kDecode)] = &seconds.Add(
        {{"codec", name}, {"stage", "decode"}}, Boundaries(kSecondsBuckets));
    codecs_.push_back(series);
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
  const auto observe = [](prometheus::Histogram* histogram,
                          const std::optional<double>& value) {
    if (value) histogram->Observe(*value);
  };
  series->ratio->Observe(report.compression_ratio);
  series->value_bytes->Observe(report.bits_per_value / 8);
  observe(series->snr, report.metrics.snr_db);
  if (report.worst_tensor >= 0) {
    observe(series->worst_snr,
            report.tensors[static_cast<size_t>(report.worst_tensor)]
                .metrics.snr_db);
  }
  observe(series->centred_snr, report.metrics.centred_snr_db);
  observe(series->token_snr_p1, report.metrics.token_snr_db_p1);
  observe(series->first_token_rmse, report.metrics.first_token_rmse);
  series->cosine->Observe(report.metrics.cosine_similarity);
  series->rmse->Observe(report.metrics.rmse);
  levels_[static_cast<int>(report.verdict.level)]->Increment();
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
