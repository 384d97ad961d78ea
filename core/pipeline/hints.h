// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the options and the metadata of an input tell encoders. Internal to the
// library.

#ifndef KVCOMPRESS_PIPELINE_HINTS_H_
#define KVCOMPRESS_PIPELINE_HINTS_H_

#include <string>
#include <utility>
#include <vector>

#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"

namespace kvcompress {

// Whether this can be the base of a rotary position embedding, or 0 for none.
bool IsRopeTheta(double theta);

// Options go before metadata; metadata that makes no sense says nothing. The
// thresholds are not filled in.
EncodeHints HintsFrom(
    const CompressOptions& options,
    const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_HINTS_H_
