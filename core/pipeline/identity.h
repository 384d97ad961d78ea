// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Whether an artefact is the one that a caller asked for. Internal to the
// library.

#ifndef KVCOMPRESS_PIPELINE_IDENTITY_H_
#define KVCOMPRESS_PIPELINE_IDENTITY_H_

#include "absl/status/status.h"
#include "kvcompress/artefact.h"
#include "kvcompress/decompressor.h"

namespace kvcompress {

// DATA_LOSS, with reason IDENTITY_MISMATCH, for another checksum or another
// value of a label than the options expect.
absl::Status CheckIdentity(const DecompressOptions& options,
                           const ArtefactHeader& header);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_IDENTITY_H_
