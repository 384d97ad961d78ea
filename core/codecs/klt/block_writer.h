// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Writes a block of klt from what it holds. Specified in core/FORMAT.md, "klt".

#ifndef KVCOMPRESS_CODECS_KLT_BLOCK_WRITER_H_
#define KVCOMPRESS_CODECS_KLT_BLOCK_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codecs/klt/format.h"
#include "codecs/klt/geometry.h"
#include "coding/format.h"
#include "kvcompress/checkpoint.h"
#include "transform/basis.h"

namespace kvcompress::klt {

// Appends the block to `*payload`. `levels` are those of the groups, [tokens,
// components] each: in steps, with a trellis in half steps; those of sinks are
// not used. `bases` has one for each group, or is empty
// where they are those of the block before. What `symbols` and `words` have is
// lost. False when it is larger than a block may be, or the checkpoint, which
// may be null, stops.
bool WriteBlock(const coding::TensorHeader& header, const Geometry& geometry,
                const Block& block, const BlockContent& content,
                const int32_t* levels,
                absl::Span<const coding::Reflectors> bases,
                absl::string_view exceptions, std::vector<uint16_t>* symbols,
                std::vector<uint16_t>* words, Checkpoint* checkpoint,
                std::string* payload);

}  // namespace kvcompress::klt

#endif  // KVCOMPRESS_CODECS_KLT_BLOCK_WRITER_H_
