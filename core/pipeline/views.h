// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What of an input is coded as it is, and what as the views of a layout.
// Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_VIEWS_H_
#define KVCOMPRESS_PIPELINE_VIEWS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/artefact.h"
#include "kvcompress/compressor.h"
#include "kvcompress/safetensors.h"

namespace kvcompress {

// The layout of tensors that do not declare their own: the option, else the
// metadata key "layout" of the input, else none. INVALID_ARGUMENT for metadata
// that is no layout: nothing else would be noticed.
absl::StatusOr<std::string> DefaultLayout(
    const CompressOptions& options,
    const std::vector<std::pair<std::string, std::string>>& metadata);

// Adds a tensor of the input to those of the artefact, with `codec`, and
// returns the bytes that encoding it takes. `offset` is where the input's data
// begin. INVALID_ARGUMENT when the layout does not fit; OUT_OF_RANGE when a
// whole tensor, or what a layout needs at a time, is larger than the limit.
// `*views` counts those that layouts add, of all tensors; 0 at the first.
absl::StatusOr<uint64_t> AddTensor(SafetensorsEntry entry,
                                   const std::string& default_layout,
                                   const CodecSpec& codec, uint64_t offset,
                                   const CompressOptions& options,
                                   const CompressLimits& limits,
                                   uint64_t* views, ArtefactHeader* artefact);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_VIEWS_H_
