// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/report_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

// Of two tensors that are not exact. Keys go before others, and by their
// centred SNR: this orders codecs as the damage to a model does, which the SNR
// of a tensor alone does not (validation/results/metrics).
bool IsWorse(const Metrics& metrics, const Metrics& other) {
  const bool key = metrics.centred_snr_db.has_value();
  if (key != other.centred_snr_db.has_value()) return key;
  return key ? *metrics.centred_snr_db < *other.centred_snr_db
             : *metrics.snr_db < *other.snr_db;
}

}  // namespace

const QualityThresholds& ReportBuilder::ThresholdsOf(TensorRole role) const {
  const std::optional<QualityThresholds>& own = role == TensorRole::kKey
                                                    ? options_.key_thresholds
                                                    : options_.value_thresholds;
  return own && role != TensorRole::kNone ? *own : options_.thresholds;
}

void ReportBuilder::Add(const ArtefactTensor& tensor, uint64_t size,
                        const KeyHints& told) {
  TensorReport report;
  report.rope = told.rope;
  report.spec = tensor.spec;
  report.codec = tensor.codec.ToString();
  report.original_size = size;
  report.compressed_size = tensor.payload_size;
  report.digest = tensor.digest;
  if (told.not_finite) CountNotFinite(tensor.spec.name);
  if (told.likelier_theta) {
    if (likelier_thetas_.empty()) first_other_rope_ = tensor.spec.name;
    ++likelier_thetas_[*told.likelier_theta];
  }
  report_.tensors.push_back(std::move(report));
}

void ReportBuilder::CountNotFinite(const std::string& tensor) {
  if (not_finite_++ == 0) first_not_finite_ = tensor;
}

void ReportBuilder::Settle(size_t index,
                           const DistortionAccumulator& distortion,
                           const std::optional<TokenSums>& tokens) {
  TensorReport& report = report_.tensors[index];
  report.metrics = distortion.Compute();
  if (IsNumber(report.spec.dtype)) Judge(distortion, tokens, &report);
  if (!report.verdict.passed) ++report_.tensors_failed;
  if (report.metrics.snr_db &&
      (report_.worst_tensor < 0 ||
       IsWorse(report.metrics,
               report_.tensors[report_.worst_tensor].metrics))) {
    report_.worst_tensor = static_cast<int64_t>(index);
  }
}

// Of a tensor of numbers: what is none is exact, and bounds are not on it.
void ReportBuilder::Judge(const DistortionAccumulator& distortion,
                          const std::optional<TokenSums>& tokens,
                          TensorReport* report) {
  pooled_.Merge(distortion);
  if (options_.metrics == MetricsLevel::kBasic) {
    report->verdict =
        kvcompress::Judge(report->metrics, ThresholdsOf(report->spec.role));
    return;
  }
  const TokenSums sums =
      tokens ? *tokens
             : TokenSums::Unknown(report->spec, report->metrics.max_error);
  AddTokenMetrics(sums, &report->metrics);
  pooled_tokens_.Merge(sums);
  report->verdict =
      kvcompress::Judge(report->metrics, ThresholdsOf(report->spec.role));
}

void ReportBuilder::WarnOfRope() {
  if (likelier_thetas_.empty()) return;
  const auto [theta, count] = *std::max_element(
      likelier_thetas_.begin(), likelier_thetas_.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  report_.warnings.push_back(
      {.code = "ROPE_SUSPECT",
       .message = absl::StrCat(
           "keys do not fit the rotary position embedding that is declared: "
           "the result is larger or worse than it need be; ",
           theta, " fits better as rope_theta (", count,
           " of the tensors looked at): declare it, or leave it out"),
       .tensor = first_other_rope_});
}

CompressReport ReportBuilder::Finish(uint64_t compressed_size,
                                     std::string payload_digest) {
  report_.compressed_size = compressed_size;
  report_.metrics = pooled_.Compute();
  if (options_.metrics == MetricsLevel::kFull) {
    AddTokenMetrics(pooled_tokens_, &report_.metrics);
  }
  report_.verdict = kvcompress::Judge(report_.metrics, options_.thresholds);
  if (report_.elements > 0) {
    const double elements = static_cast<double>(report_.elements);
    const double bytes = static_cast<double>(compressed_size);
    report_.compression_ratio = 2 * elements / bytes;
    report_.bits_per_value = 8 * bytes / elements;
  }
  if (not_finite_ > 0) {
    report_.warnings.push_back(
        {.code = "NOT_FINITE",
         .message = absl::StrCat(
             not_finite_, " of ", report_.tensors.size(),
             " tensors have NaN or infinity, which cannot be quantized, and "
             "were kept without loss: the result is larger than it need be; "
             "set positions that nobody reads, such as padding, to 0"),
         .tensor = first_not_finite_});
  }
  WarnOfRope();
  report_.payload_digest = std::move(payload_digest);
  return std::move(report_);
}

}  // namespace kvcompress
