// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/exceptions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/elements.h"

namespace kvcompress::coding {
namespace {

// Elements that are looked at one by one where one of them is patched.
constexpr size_t kAtOnce = 512;
constexpr size_t kMaxGapBytes = 3;

}  // namespace

void ExceptionWriter::AddHead(const uint8_t* source, size_t count,
                              float most_error, uint8_t* decoded) {
  const size_t size = DTypeSize(dtype_);
  float x[kAtOnce];
  float y[kAtOnce];
  for (size_t begin = 0; begin < count; begin += kAtOnce) {
    const size_t some = std::min(kAtOnce, count - begin);
    const uint8_t* const from = source + begin * size;
    uint8_t* const to = decoded + begin * size;
    if (CompareElements(dtype_, from, to, some).max_abs_e <= most_error) {
      continue;
    }
    LoadElements(dtype_, from, absl::MakeSpan(x, some));
    LoadElements(dtype_, to, absl::MakeSpan(y, some));
    for (size_t i = 0; i < some; ++i) {
      if (std::abs(y[i] - x[i]) <= most_error) continue;
      Put(done_ + begin + i, from + i * size);
      std::memcpy(to + i * size, from + i * size, size);
    }
  }
  done_ += count;
}

void ExceptionWriter::Put(size_t element, const uint8_t* source) {
  for (size_t gap = element - next_;; gap >>= 7) {
    const bool more = gap >= 0x80;
    bytes_.push_back(static_cast<char>((gap & 0x7f) | (more ? 0x80 : 0)));
    if (!more) break;
  }
  bytes_.append(reinterpret_cast<const char*>(source), DTypeSize(dtype_));
  next_ = element + 1;
}

bool ApplyExceptions(absl::Span<const uint8_t> exceptions, DType dtype,
                     size_t heads, size_t count, size_t stride, uint8_t* out) {
  const size_t size = DTypeSize(dtype);
  uint64_t next = 0;  // the first element that may still be patched
  while (!exceptions.empty()) {
    uint64_t gap = 0;
    size_t length = 0;
    do {
      if (length == exceptions.size() || length == kMaxGapBytes) return false;
      gap |= uint64_t{exceptions[length] & 0x7fu} << (7 * length);
    } while (exceptions[length++] >= 0x80);
    if (length > 1 && exceptions[length - 1] == 0) return false;
    exceptions.remove_prefix(length);
    const uint64_t element = next + gap;
    if (element >= heads * count || exceptions.size() < size) return false;
    float value;
    LoadElements(dtype, exceptions.data(), absl::MakeSpan(&value, 1));
    if (!std::isfinite(value)) return false;
    const uint64_t place = element / count * stride + element % count;
    std::memcpy(out + place * size, exceptions.data(), size);
    exceptions.remove_prefix(size);
    next = element + 1;
  }
  return true;
}

}  // namespace kvcompress::coding
