// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/escapes.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "coding/format.h"
#include "kernels/elements.h"

namespace kvcompress::coding {

std::optional<absl::Span<const uint8_t>> Cutter::Take(uint64_t size) {
  if (size > left_.size()) return std::nullopt;
  const absl::Span<const uint8_t> taken = left_.subspan(0, size);
  left_.remove_prefix(size);
  return taken;
}

bool Escapes::Next(int32_t* value) {
  const auto two = cutter_.Take(2);
  if (!two) return false;
  int16_t small;
  std::memcpy(&small, two->data(), sizeof(small));
  *value = small;
  if (small != INT16_MIN) return true;
  const auto four = cutter_.Take(4);
  if (!four) return false;
  std::memcpy(value, four->data(), sizeof(*value));
  return *value >= -kMaxQuantum && *value <= kMaxQuantum &&
         (*value <= INT16_MIN || *value > INT16_MAX);
}

std::string Patch(DType dtype, const uint8_t* source, float most_error,
                  size_t count, uint8_t* decoded) {
  std::string exceptions;
  std::vector<float> x(count);
  std::vector<float> y(count);
  LoadElements(dtype, source, absl::MakeSpan(x));
  LoadElements(dtype, decoded, absl::MakeSpan(y));
  const size_t size = DTypeSize(dtype);
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::abs(y[i] - x[i]) <= most_error) continue;
    for (size_t gap = i - next;; gap >>= 7) {
      const bool more = gap >= 0x80;
      exceptions.push_back(static_cast<char>((gap & 0x7f) | (more ? 0x80 : 0)));
      if (!more) break;
    }
    exceptions.append(reinterpret_cast<const char*>(source) + i * size, size);
    std::memcpy(decoded + i * size, source + i * size, size);
    next = i + 1;
  }
  return exceptions;
}

bool ApplyExceptions(absl::Span<const uint8_t> exceptions, DType dtype,
                     size_t elements, uint8_t* out) {
  const size_t element_size = DTypeSize(dtype);
  uint64_t next = 0;  // the first element that may still be patched
  while (!exceptions.empty()) {
    uint64_t gap = 0;
    size_t length = 0;
    do {
      if (length == exceptions.size() || length == 3) return false;
      gap |= uint64_t{exceptions[length] & 0x7fu} << (7 * length);
    } while (exceptions[length++] >= 0x80);
    if (length > 1 && exceptions[length - 1] == 0) return false;
    exceptions.remove_prefix(length);
    const uint64_t element = next + gap;
    if (element >= elements || exceptions.size() < element_size) return false;
    float value;
    LoadElements(dtype, exceptions.data(), absl::MakeSpan(&value, 1));
    if (!std::isfinite(value)) return false;
    std::memcpy(out + element * element_size, exceptions.data(), element_size);
    exceptions.remove_prefix(element_size);
    next = element + 1;
  }
  return true;
}

}  // namespace kvcompress::coding
