// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What compressing a cache takes, worked out from its header and the options
// before any data has come: the codec of each tensor, the groups of a profile,
// the room for the header of the artefact, and the memory of the largest
// tensor. Internal to the library.

#ifndef KVCOMPRESS_PLAN_COMPRESS_PLAN_H_
#define KVCOMPRESS_PLAN_COMPRESS_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcompress/artefact.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/safetensors.h"
#include "pipeline/groups.h"
#include "pipeline/report_builder.h"

namespace kvcompress {

// The errors of Compressor::ValidateOptions. `builder` has the same options.
absl::Status ValidateCompressOptions(const CompressOptions& options,
                                     const ReportBuilder& builder);

struct CompressPlan {
  // What it is made of, besides options and limits.
  struct Input {
    SafetensorsHeader header;
    uint64_t position = 0;  // of the first byte of data
  };

  // The errors of Compressor::Append that a header can cause, and that of the
  // checkpoint, which may be null. Adds to the report what is known.
  static absl::StatusOr<CompressPlan> Make(const CompressOptions& options,
                                           const CompressLimits& limits,
                                           const CodecSpec& codec, Input input,
                                           Checkpoint* checkpoint,
                                           CompressReport* report);

  ArtefactHeader artefact;  // payloads have neither size nor digest yet
  EncodeHints hints;        // thresholds, buffers and workers are not set
  GroupCompression groups;
  uint64_t reserved_size = 0;  // bytes of the artefact's header
  uint64_t tensor_memory = 0;  // bytes that the largest tensor takes, alone
  std::string source_header;   // of what the artefact is restored to, if wanted
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PLAN_COMPRESS_PLAN_H_
