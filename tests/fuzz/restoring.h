// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What fuzzers ask of a decompressor: no step returns more than it may.

#ifndef KVCOMPRESS_TESTS_FUZZ_RESTORING_H_
#define KVCOMPRESS_TESTS_FUZZ_RESTORING_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "input.h"
#include "kvcompress/codec.h"
#include "kvcompress/decompressor.h"

namespace kvcompress::fuzz {

// Appends what `chunk` returns, in steps whose size follows from `seed`.
// RESOURCE_EXHAUSTED once `*restored` has `enough` bytes.
inline absl::Status RestoreChunk(absl::string_view chunk, uint8_t seed,
                                 Decompressor* decompressor,
                                 std::string* restored,
                                 size_t enough = SIZE_MAX) {
  // So large that a step for each byte is not all that is done.
  const size_t most = seed == 0 ? 1 << 20 : size_t{16} << (seed % 20);
  std::string output;
  for (bool more = true; more; output.clear()) {
    const absl::StatusOr<bool> step =
        decompressor->Restore(&chunk, most, &output);
    if (!step.ok()) return step.status();
    Require(output.size() <= std::max<size_t>(most, kMaxDecodedBlock),
            "a step gives no more than it may");
    more = *step;
    restored->append(output);
    if (restored->size() >= enough) {
      return absl::ResourceExhaustedError("enough");
    }
  }
  Require(chunk.empty(), "a decompressor that has no more has taken all");
  return absl::OkStatus();
}

}  // namespace kvcompress::fuzz

#endif  // KVCOMPRESS_TESTS_FUZZ_RESTORING_H_
