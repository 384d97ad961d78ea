// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Fields of the headers of ecsq and klt: fixed sizes, little-endian.

#ifndef KVCOMPRESS_CODING_FIELDS_H_
#define KVCOMPRESS_CODING_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/types/span.h"

namespace kvcompress::coding {

template <typename T>
void Put(T value, std::string* out) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out->append(bytes, sizeof(value));
}

// REQUIRES: position + sizeof(T) <= bytes.size().
template <typename T>
T Get(absl::Span<const uint8_t> bytes, size_t position) {
  T value;
  std::memcpy(&value, bytes.data() + position, sizeof(value));
  return value;
}

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_CODING_FIELDS_H_
