// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/gate.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

// The others are counted.
constexpr size_t kMaxSentences = 20;

std::string Sentence(const v1::TensorReport& tensor,
                     const v1::MissedBound& missed) {
  const bool upper = absl::StartsWith(missed.bound(), "max_");
  const absl::string_view side = upper ? "below" : "above";
  const std::string metric = Printable(missed.metric());
  const std::string name = QuoteName(tensor.name());
  if (!missed.has_value()) {
    return absl::StrCat(metric, " of tensor ", name,
                        " is not known for its shape, so it is not ", side, " ",
                        missed.limit());
  }
  return absl::StrCat(metric, " ", missed.value(), " of tensor ", name,
                      " is not ", side, " ", missed.limit(), ": it misses by ",
                      upper ? missed.value() - missed.limit()
                            : missed.limit() - missed.value());
}

}  // namespace

bool HasGate(const v1::CompressOptions& options) {
  return options.has_thresholds() || options.has_key_thresholds() ||
         options.has_value_thresholds();
}

bool ApplyGate(v1::CompressionReport* report) {
  std::vector<std::string> sentences;
  for (const v1::TensorReport& tensor : report->tensors()) {
    for (const v1::MissedBound& missed : tensor.verdict().missed()) {
      if (missed.requested()) sentences.push_back(Sentence(tensor, missed));
    }
  }
  if (sentences.empty()) return true;
  v1::QualityVerdict* verdict = report->mutable_verdict();
  verdict->set_passed(false);
  for (size_t i = 0; i < sentences.size() && i < kMaxSentences; ++i) {
    verdict->add_violations(sentences[i]);
  }
  if (sentences.size() > kMaxSentences) {
    verdict->add_violations(absl::StrCat(
        "and ", sentences.size() - kMaxSentences, " more bounds are missed"));
  }
  return false;
}

}  // namespace kvcompress::cli
