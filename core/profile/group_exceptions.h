// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The exceptions of a tensor of a group: elements that are as the source has
// them. Specified in core/FORMAT.md, "klt-profile". Internal to the library.

#ifndef KVCOMPRESS_PROFILE_GROUP_EXCEPTIONS_H_
#define KVCOMPRESS_PROFILE_GROUP_EXCEPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/dtype.h"

namespace kvcompress::profile {

// The list of the elements of `decoded` that are off by more than `max_error`,
// which are replaced there. Both have the elements of a tensor, all finite.
// Anything when the checkpoint, which may be null, stops.
std::string TakeExceptions(DType dtype, absl::string_view source,
                           float max_error, Checkpoint* checkpoint,
                           std::string* decoded);

// DATA_LOSS where a list breaks a rule for a tensor of so many elements. The
// status of the checkpoint, which may be null, when that stops.
absl::Status CheckExceptions(absl::string_view list, DType dtype,
                             uint64_t elements, Checkpoint* checkpoint);

// Goes through a list that was checked, and outlives this.
class ExceptionCursor {
 public:
  ExceptionCursor(absl::string_view list, DType dtype)
      : all_(list), left_(list), size_(DTypeSize(dtype)) {}

  // Replaces those of the elements [first, first + count), which are at `out`;
  // passes them where that is null.
  // Fastest where calls go on in the order of the tensor.
  void Apply(uint64_t first, uint64_t count, uint8_t* out);

 private:
  const absl::string_view all_;
  absl::string_view left_;  // behind the exceptions that are passed
  const size_t size_;
  uint64_t next_ = 0;  // the first element that may still be one
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_GROUP_EXCEPTIONS_H_
