// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/requests.h"

namespace kvcompress::cli {

v1::CompressOptions ToCompressOptions(const Flags& flags) {
  v1::CompressOptions options;
  options.set_codec(flags.codec);
  if (flags.group_size) options.set_group_size(*flags.group_size);
  options.set_preset(flags.preset);
  if (flags.min_snr_db) {
    options.mutable_thresholds()->set_min_snr_db(*flags.min_snr_db);
  }
  options.set_report_tensors(flags.verbose);
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
  options.set_verify_only(flags.mode == Mode::kVerify);
  return options;
}

absl::Status SparsityError(const v1::GetServerInfoResponse& server) {
  for (const v1::CodecInfo& codec : server.codecs()) {
    if (codec.name() == "sparse") {
      return absl::UnimplementedError(
          "-sparsity: the server has the codec \"sparse\", but this version of "
          "kv-compress cannot ask for it");
    }
  }
  return absl::UnimplementedError(
      "-sparsity needs the codec \"sparse\", which this server does not have");
}

}  // namespace kvcompress::cli
