// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_exceptions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/elements.h"

namespace kvcompress::profile {
namespace {

// Elements that are looked at one by one where one of them is an exception.
constexpr size_t kAtOnce = 512;
// Elements, and exceptions, between two looks at the checkpoint.
constexpr size_t kBetweenLooks = size_t{1} << 16;
constexpr size_t kMaxGapBytes = 9;
constexpr int kGapBits = 7;
constexpr uint8_t kMore = 0x80;

const uint8_t* Data(absl::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

void PutGap(uint64_t gap, std::string* out) {
  for (;; gap >>= kGapBits) {
    const bool more = gap >= kMore;
    out->push_back(static_cast<char>((gap & (kMore - 1)) | (more ? kMore : 0)));
    if (!more) return;
  }
}

// Bytes of the gap at the front; 0 for one that breaks a rule.
size_t ReadGap(absl::string_view list, uint64_t* gap) {
  *gap = 0;
  for (size_t i = 0; i < std::min(list.size(), kMaxGapBytes); ++i) {
    const auto byte = static_cast<uint8_t>(list[i]);
    *gap |= uint64_t{byte & (kMore - 1u)} << (kGapBits * i);
    if (byte < kMore) return byte == 0 && i > 0 ? 0 : i + 1;
  }
  return 0;
}

}  // namespace

std::string TakeExceptions(DType dtype, absl::string_view source,
                           float max_error, Checkpoint* checkpoint,
                           std::string* decoded) {
  const size_t size = DTypeSize(dtype);
  const size_t elements = source.size() / size;
  std::string list;
  float x[kAtOnce];
  float y[kAtOnce];
  size_t next = 0;  // the first element that may still be one
  for (size_t begin = 0; begin < elements; begin += kAtOnce) {
    if (begin % kBetweenLooks == 0 && Stops(checkpoint)) break;
    const size_t some = std::min(kAtOnce, elements - begin);
    const uint8_t* const from = Data(source) + begin * size;
    auto* const to = reinterpret_cast<uint8_t*>(&(*decoded)[begin * size]);
    if (CompareElements(dtype, from, to, some).max_abs_e <= max_error) {
      continue;
    }
    LoadElements(dtype, from, absl::MakeSpan(x, some));
    LoadElements(dtype, to, absl::MakeSpan(y, some));
    for (size_t i = 0; i < some; ++i) {
      if (std::abs(y[i] - x[i]) <= max_error) continue;
      PutGap(begin + i - next, &list);
      list.append(reinterpret_cast<const char*>(from) + i * size, size);
      std::memcpy(to + i * size, from + i * size, size);
      next = begin + i + 1;
    }
  }
  return list;
}

absl::Status CheckExceptions(absl::string_view list, DType dtype,
                             uint64_t elements, Checkpoint* checkpoint) {
  const auto bad = [](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat("a group's payload has an exception ", what));
  };
  const size_t size = DTypeSize(dtype);
  uint64_t next = 0;
  for (uint64_t i = 0; !list.empty(); ++i) {
    if (i % kBetweenLooks == 0 && Stops(checkpoint)) {
      return checkpoint->status();
    }
    uint64_t gap = 0;
    const size_t length = ReadGap(list, &gap);
    if (length == 0) return bad("with a bad gap");
    if (gap >= elements - next) return bad("beyond its tensor");
    if (list.size() < length + size) return bad("that is incomplete");
    float value;
    LoadElements(dtype, Data(list) + length, absl::MakeSpan(&value, 1));
    if (!std::isfinite(value)) return bad("that is not finite");
    next += gap + 1;
    list.remove_prefix(length + size);
  }
  return absl::OkStatus();
}

void ExceptionCursor::Apply(uint64_t first, uint64_t count, uint8_t* out) {
  if (first < next_) {
    left_ = all_;
    next_ = 0;
  }
  while (!left_.empty()) {
    uint64_t gap = 0;
    const size_t length = ReadGap(left_, &gap);
    const uint64_t element = next_ + gap;
    if (element >= first + count) return;
    if (element >= first && out != nullptr) {
      std::memcpy(out + (element - first) * size_, left_.data() + length,
                  size_);
    }
    left_.remove_prefix(length + size_);
    next_ = element + 1;
  }
}

}  // namespace kvcompress::profile
