// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Coded bytes: 16 interleaved lanes of rANS under a static model, 12-bit
// frequencies, 32-bit states, 16-bit words (Duda, arXiv:1311.2540; Giesen,
// arXiv:1402.3392). Specified in core/FORMAT.md, "Coded bytes". Integer
// arithmetic only; pure and thread safe. Internal to the library.

#ifndef KVCOMPRESS_ENTROPY_CODED_BYTES_H_
#define KVCOMPRESS_ENTROPY_CODED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "entropy/frequencies.h"

namespace kvcompress::coding {

inline constexpr size_t kByteLanes = 16;

// Appends the coded form of `symbols` under the model of `counts`, which is
// written first. REQUIRES: `counts` are those of `symbols`, not empty.
void EncodeBytes(absl::string_view symbols, const ByteCounts& counts,
                 std::string* coded);

// Decodes all of `coded` to `count` symbols. DATA_LOSS says which rule of the
// format it breaks; the symbols are then unspecified. Not trusted: reads
// nothing beyond `coded`, writes nothing beyond `count` bytes.
absl::Status DecodeBytes(absl::string_view coded, size_t count,
                         uint8_t* symbols);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_ENTROPY_CODED_BYTES_H_
