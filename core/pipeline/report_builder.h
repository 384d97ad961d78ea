// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Makes the report on a cache from what was measured of its tensors. Internal
// to the library.

#ifndef KVCOMPRESS_PIPELINE_REPORT_BUILDER_H_
#define KVCOMPRESS_PIPELINE_REPORT_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kvcompress/artefact.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/metrics.h"
#include "kvcompress/quality.h"
#include "metrics/token_quality.h"

namespace kvcompress {

// Not thread safe.
class ReportBuilder {
 public:
  // `options` outlives this.
  explicit ReportBuilder(const CompressOptions& options) : options_(options) {}

  // Those for keys, for values, or for all.
  const QualityThresholds& ThresholdsOf(TensorRole role) const;

  // To be filled in by callers with what is known of the whole cache.
  CompressReport& report() { return report_; }
  const CompressReport& report() const { return report_; }

  // Takes a tensor or view that was encoded, of `size` bytes, with the hints of
  // its encoder.
  void Add(const ArtefactTensor& tensor, uint64_t size, const KeyHints& told);

  // Takes note of a tensor or view that is not finite, and so was kept without
  // loss; Add does for those that it takes.
  void CountNotFinite(const std::string& tensor);

  // Completes the report on the tensor or view that was the `index`-th to be
  // added by what it lost; `tokens` where they were measured.
  void Settle(size_t index, const DistortionAccumulator& distortion,
              const std::optional<TokenSums>& tokens);

  // The report on an artefact of so many bytes. To be called once.
  CompressReport Finish(uint64_t compressed_size, std::string payload_digest);

 private:
  void WarnOfRope();
  void Judge(const DistortionAccumulator& distortion,
             const std::optional<TokenSums>& tokens, TensorReport* report);

  const CompressOptions& options_;
  CompressReport report_;
  uint64_t not_finite_ = 0;       // tensors or views that were kept for that
  std::string first_not_finite_;  // of them
  // Keys that another base of their rotation fits than the one declared.
  std::map<double, uint64_t> likelier_thetas_;
  std::string first_other_rope_;
  DistortionAccumulator pooled_;
  TokenSums pooled_tokens_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_REPORT_BUILDER_H_
