// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decodes a whole payload, in steps of any size.

#ifndef KVCOMPRESS_TESTS_UNIT_SUPPORT_DECODING_H_
#define KVCOMPRESS_TESTS_UNIT_SUPPORT_DECODING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/codec.h"

namespace kvcompress::testing {

struct DecodeSteps {
  size_t chunk = SIZE_MAX;  // bytes of payload that come at once
  size_t most = SIZE_MAX;   // bytes of output of a step
  // Sees the size of the output of each step, unless null.
  std::function<void(size_t)> see;
};

// Appends all of it to `*decoded`; the first error ends it.
inline absl::Status DecodeAll(TensorDecoder& decoder, absl::string_view payload,
                              std::string* decoded,
                              const DecodeSteps& steps = {}) {
  std::string output;
  while (!payload.empty()) {
    absl::string_view part = payload.substr(0, steps.chunk);
    payload.remove_prefix(part.size());
    for (bool more = true; more;) {
      const absl::StatusOr<bool> step =
          decoder.Decode(&part, steps.most, &output);
      if (!step.ok()) return step.status();
      more = *step;
      if (steps.see) steps.see(output.size());
      decoded->append(output);
      output.clear();
    }
    if (!part.empty()) return absl::InternalError("payload is left");
  }
  return decoder.Finish();
}

}  // namespace kvcompress::testing

#endif  // KVCOMPRESS_TESTS_UNIT_SUPPORT_DECODING_H_
