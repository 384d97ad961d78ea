// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/requests.h"

#include "client/cli/gate.h"

namespace kvcompress::cli {

v1::CompressOptions ToCompressOptions(const Flags& flags) {
  v1::CompressOptions options;
  options.set_codec(flags.codec);
  options.set_effort(flags.effort);
  options.set_block_tokens(static_cast<uint32_t>(flags.block_tokens));
  options.set_metrics(flags.metrics);
  if (flags.rope_theta) options.set_rope_theta(*flags.rope_theta);
  if (flags.rope) *options.mutable_rope() = *flags.rope;
  if (flags.thresholds) *options.mutable_thresholds() = *flags.thresholds;
  if (flags.key_thresholds) {
    *options.mutable_key_thresholds() = *flags.key_thresholds;
  }
  if (flags.value_thresholds) {
    *options.mutable_value_thresholds() = *flags.value_thresholds;
  }
  options.mutable_key_patterns()->Assign(flags.key_patterns.begin(),
                                         flags.key_patterns.end());
  options.mutable_value_patterns()->Assign(flags.value_patterns.begin(),
                                           flags.value_patterns.end());
  options.set_layout(flags.layout);
  options.set_report_tensors(flags.verbose || HasGate(options));
  options.mutable_labels()->insert(flags.labels.begin(), flags.labels.end());
  return options;
}

v1::DecompressOptions ToDecompressOptions(const Flags& flags) {
  v1::DecompressOptions options;
  options.mutable_expected_labels()->insert(flags.labels.begin(),
                                            flags.labels.end());
  options.mutable_tensors()->Assign(flags.tensors.begin(), flags.tensors.end());
  if (flags.tokens) {
    options.mutable_tokens()->set_begin(flags.tokens->first);
    options.mutable_tokens()->set_end(flags.tokens->second);
  }
  options.set_order(flags.order);
  options.set_verify_only(flags.mode == Mode::kVerify);
  return options;
}

}  // namespace kvcompress::cli
