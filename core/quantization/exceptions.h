// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The exceptions of a block: elements that are stored as the source has them,
// because they would be too far off. Specified in core/FORMAT.md, "ecsq", and
// counted over the heads of a block as "klt" says.

#ifndef KVCOMPRESS_QUANTIZATION_EXCEPTIONS_H_
#define KVCOMPRESS_QUANTIZATION_EXCEPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kvcompress/dtype.h"

namespace kvcompress::coding {

class ExceptionWriter {
 public:
  explicit ExceptionWriter(DType dtype) : dtype_(dtype) {}

  // Goes on to the elements of the next head, and replaces those of `decoded`
  // that are off by more than `max_error`.
  void AddHead(const uint8_t* source, size_t count, float max_error,
               uint8_t* decoded);
  // The same where none is.
  void SkipHead(size_t count) { done_ += count; }

  const std::string& bytes() const { return bytes_; }

 private:
  void Put(size_t element, const uint8_t* source);

  const DType dtype_;
  std::string bytes_;
  size_t done_ = 0;  // elements of the heads before
  size_t next_ = 0;  // the first element that may still be one
};

// Replaces the exceptions of a block: `heads` times `count` elements, heads
// `stride` elements apart at `out`. DATA_LOSS where the list breaks a rule.
absl::Status ApplyExceptions(absl::Span<const uint8_t> exceptions, DType dtype,
                             size_t heads, size_t count, size_t stride,
                             uint8_t* out);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_EXCEPTIONS_H_
