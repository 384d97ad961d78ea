// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "quantization/exceptions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/elements.h"

namespace kvcompress::coding {
namespace {

// Elements that are looked at one by one where one of them is an exception.
constexpr size_t kAtOnce = 512;
constexpr size_t kMaxGapBytes = 3;

}  // namespace

void ExceptionWriter::AddHead(const uint8_t* source, size_t count,
                              float max_error, uint8_t* decoded) {
  const size_t size = DTypeSize(dtype_);
  float x[kAtOnce];
  float y[kAtOnce];
  for (size_t begin = 0; begin < count; begin += kAtOnce) {
    const size_t some = std::min(kAtOnce, count - begin);
    const uint8_t* const from = source + begin * size;
    uint8_t* const to = decoded + begin * size;
    if (CompareElements(dtype_, from, to, some).max_abs_e <= max_error) {
      continue;
    }
    LoadElements(dtype_, from, absl::MakeSpan(x, some));
    LoadElements(dtype_, to, absl::MakeSpan(y, some));
    for (size_t i = 0; i < some; ++i) {
      if (std::abs(y[i] - x[i]) <= max_error) continue;
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

absl::Status ApplyExceptions(absl::Span<const uint8_t> exceptions, DType dtype,
                             size_t heads, size_t count, size_t stride,
                             uint8_t* out) {
  const size_t size = DTypeSize(dtype);
  const absl::Span<const uint8_t> all = exceptions;
  const auto broken = [&](absl::string_view rule) {
    return absl::DataLossError(absl::StrCat("the exception at offset ",
                                            exceptions.data() - all.data(),
                                            " of their list ", rule));
  };
  uint64_t next = 0;  // the first element that may still be one
  while (!exceptions.empty()) {
    uint64_t gap = 0;
    size_t length = 0;
    do {
      if (length == exceptions.size()) return broken("is incomplete");
      if (length == kMaxGapBytes) return broken("has a gap of too many bytes");
      gap |= uint64_t{exceptions[length] & 0x7fu} << (7 * length);
    } while (exceptions[length++] >= 0x80);
    if (length > 1 && exceptions[length - 1] == 0) {
      return broken("has a gap that fewer bytes can hold");
    }
    const uint64_t element = next + gap;
    if (element >= heads * count) return broken("is beyond the block");
    if (exceptions.size() < length + size) return broken("is incomplete");
    float value;
    LoadElements(dtype, &exceptions[length], absl::MakeSpan(&value, 1));
    if (!std::isfinite(value)) return broken("is not finite");
    const uint64_t place = element / count * stride + element % count;
    std::memcpy(out + place * size, &exceptions[length], size);
    exceptions.remove_prefix(length + size);
    next = element + 1;
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::coding
