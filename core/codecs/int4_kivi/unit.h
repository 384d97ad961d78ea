// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// One unit of `int4-kivi`: a few tokens of one head, with a step and a zero
// point for each group. Specified in core/FORMAT.md, "int4-kivi".

#ifndef KVCOMPRESS_CODECS_INT4_KIVI_UNIT_H_
#define KVCOMPRESS_CODECS_INT4_KIVI_UNIT_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace kvcompress::int4_kivi {

// What a unit's groups are.
struct UnitShape {
  size_t elements = 0;
  // Of a token; the last token may have fewer.
  size_t channels = 0;
  // Elements of a group along a token; 0: a group is a channel.
  size_t group = 0;

  size_t Groups() const;
  // A step and a zero point for each group, then the codes.
  size_t PayloadSize() const { return 2 * Groups() + (elements + 1) / 2; }
};

// Encodes finite values and replaces them by what decoding yields, before it is
// rounded to the source type. Returns the index of a value that no step can
// hold.
std::optional<size_t> EncodeUnit(UnitShape shape, absl::Span<float> values,
                                 uint8_t* payload);

// DATA_LOSS when the payload breaks the format.
absl::Status DecodeUnit(UnitShape shape, const uint8_t* payload,
                        absl::Span<float> values);

}  // namespace kvcompress::int4_kivi

#endif  // KVCOMPRESS_CODECS_INT4_KIVI_UNIT_H_
