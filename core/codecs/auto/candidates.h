// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What `auto` may choose among.

#ifndef KVCOMPRESS_CODECS_AUTO_CANDIDATES_H_
#define KVCOMPRESS_CODECS_AUTO_CANDIDATES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kvcompress/codec.h"

namespace kvcompress {

// Every codec and parameters to try, in rows: see Codec::AutoCandidates.
using AutoRows = std::vector<std::vector<CodecSpec>>;
const absl::StatusOr<AutoRows>& AutoCandidates(Effort effort);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_AUTO_CANDIDATES_H_
