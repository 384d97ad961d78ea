// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The exceptions of a block whose heads lie apart in the tensor: elements that
// are those of the source. Specified in core/FORMAT.md, "ecsq", counted as
// "klt" counts them.

#ifndef KVCOMPRESS_QUANTIZATION_EXCEPTIONS_H_
#define KVCOMPRESS_QUANTIZATION_EXCEPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kvcompress/dtype.h"

namespace kvcompress::coding {

class ExceptionWriter {
 public:
  explicit ExceptionWriter(DType dtype) : dtype_(dtype) {}

  // Goes on to the elements of the next head, and replaces those of `decoded`
  // that are off by more than `most_error`.
  void AddHead(const uint8_t* source, size_t count, float most_error,
               uint8_t* decoded);
  // The same where none is.
  void SkipHead(size_t count) { done_ += count; }

  const std::string& bytes() const { return bytes_; }

 private:
  void Put(size_t element, const uint8_t* source);

  const DType dtype_;
  std::string bytes_;
  size_t done_ = 0;  // elements of the heads before
  size_t next_ = 0;  // the first element that may still be patched
};

// Applies to a block: `heads` times `count` elements, heads `stride` elements
// apart at `out`. False when the bytes break a rule.
bool ApplyExceptions(absl::Span<const uint8_t> exceptions, DType dtype,
                     size_t heads, size_t count, size_t stride, uint8_t* out);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_QUANTIZATION_EXCEPTIONS_H_
