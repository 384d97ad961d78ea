// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a block lists beside its coded symbols: escapes, and exceptions of
// elements. Specified in core/FORMAT.md, "ecsq".

#ifndef KVCOMPRESS_ENTROPY_ESCAPES_H_
#define KVCOMPRESS_ENTROPY_ESCAPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "kvcompress/dtype.h"

namespace kvcompress::coding {

// Cuts bytes off the front of what is left.
class Cutter {
 public:
  explicit Cutter(absl::Span<const uint8_t> bytes) : left_(bytes) {}

  // Nothing when fewer are left.
  std::optional<absl::Span<const uint8_t>> Take(uint64_t size);
  absl::Span<const uint8_t> left() const { return left_; }

 private:
  absl::Span<const uint8_t> left_;
};

// The list of escapes.
class Escapes {
 public:
  explicit Escapes(absl::Span<const uint8_t> bytes) : cutter_(bytes) {}

  // False at the end of the list, or for a number that needs no more than the
  // form it has not got.
  bool Next(int32_t* value);
  bool AtEnd() const { return cutter_.left().empty(); }

 private:
  Cutter cutter_;
};

// Replaces those of the `count` elements at `decoded` that are more than
// `most_error` off those of the source, and gives the list of them.
std::string Patch(DType dtype, const uint8_t* source, float most_error,
                  size_t count, uint8_t* decoded);

// Replaces elements of a block of `elements` as a list says. False when the
// list breaks a rule.
bool ApplyExceptions(absl::Span<const uint8_t> exceptions, DType dtype,
                     size_t elements, uint8_t* out);

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_ENTROPY_ESCAPES_H_
