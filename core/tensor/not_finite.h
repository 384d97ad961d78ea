// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The refusal of values that cannot be quantized. Internal to the library.

#ifndef KVCOMPRESS_TENSOR_NOT_FINITE_H_
#define KVCOMPRESS_TENSOR_NOT_FINITE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvcompress/error.h"

namespace kvcompress {

inline constexpr char kNotFinite[] = "NOT_FINITE";

// INVALID_ARGUMENT: an element is NaN, infinite, or beyond binary32.
inline absl::Status NotFiniteError(absl::string_view codec,
                                   const std::string& tensor,
                                   uint64_t element) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("NaN and infinity cannot be quantized by ", codec,
                   "; use auto, which keeps such tensors without loss, or "
                   "lossless, or set positions that nobody reads to 0"),
      {.reason = kNotFinite, .tensor = tensor, .element = element});
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_NOT_FINITE_H_
