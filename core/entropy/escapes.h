// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The list of a block's escapes: values that the tables have no symbol for.
// Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_ENTROPY_ESCAPES_H_
#define KVCOMPRESS_ENTROPY_ESCAPES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace kvcompress::coding {

// Appends a value: two bytes or, for one that needs it, six.
void PutEscape(int32_t value, std::string* escapes);

// Reads a list that is not trusted.
class Escapes {
 public:
  explicit Escapes(absl::Span<const uint8_t> bytes) : left_(bytes) {}

  // False at the end of the list, for a value in six bytes that two can hold,
  // and for one beyond kernels::kMaxQuantum.
  bool Next(int32_t* value);
  bool AtEnd() const { return left_.empty(); }

 private:
  template <typename T>
  bool Take(T* value);

  absl::Span<const uint8_t> left_;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_ENTROPY_ESCAPES_H_
