// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/gate.h"

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {

bool ApplyGate(double min_snr_db, v1::CompressionReport* report) {
  if (!report->has_worst_tensor()) return true;
  const v1::TensorReport& worst = report->worst_tensor();
  if (!worst.metrics().has_snr_db()) return true;
  const double snr_db = worst.metrics().snr_db();
  if (snr_db > min_snr_db) return true;
  v1::QualityVerdict* verdict = report->mutable_verdict();
  verdict->set_passed(false);
  verdict->add_violations(absl::StrCat("snr_db ", snr_db, " of tensor ",
                                       QuoteName(worst.name()),
                                       " is not above ", min_snr_db));
  return false;
}

}  // namespace kvcompress::cli
