// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/lossless/block.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "codecs/lossless/planes.h"
#include "entropy/coded_bytes.h"

namespace kvcompress::lossless {
namespace {

uint32_t PlaneSize(absl::string_view block, size_t plane) {
  uint32_t size;
  std::memcpy(&size, block.data() + plane * sizeof(size), sizeof(size));
  return size;
}

// Whether coding is likely to pay: the Renyi entropy of order 2, which is not
// above Shannon's, is under 7 bits a byte.
bool IsWorthCoding(const coding::ByteCounts& counts, uint64_t n) {
  uint64_t squares = 0;
  for (uint64_t count : counts) squares += count * count;
  return 128 * squares > n * n;
}

void EncodePlane(absl::string_view plane, std::string* payload) {
  const coding::ByteCounts counts = coding::CountBytes(plane);
  if (counts[static_cast<uint8_t>(plane[0])] == plane.size()) {
    payload->push_back(plane[0]);
    return;
  }
  if (IsWorthCoding(counts, plane.size())) {
    const size_t begin = payload->size();
    coding::EncodeBytes(plane, counts, payload);
    if (payload->size() - begin < plane.size()) return;
    payload->resize(begin);
  }
  payload->append(plane.data(), plane.size());
}

}  // namespace

void EncodeBlock(absl::string_view elements, DType dtype, uint8_t* scratch,
                 std::string* payload) {
  const size_t element_size = DTypeSize(dtype);
  const size_t count = elements.size() / element_size;
  SplitPlanes(reinterpret_cast<const uint8_t*>(elements.data()), count, dtype,
              scratch);
  const size_t sizes = payload->size();
  const size_t least = sizes + LeastSize(count, element_size);
  payload->resize(sizes + SizesSize(element_size));
  for (size_t p = 0; p < element_size; ++p) {
    const size_t begin = payload->size();
    EncodePlane({reinterpret_cast<const char*>(scratch) + p * count, count},
                payload);
    const uint32_t size = static_cast<uint32_t>(payload->size() - begin);
    std::memcpy(payload->data() + sizes + p * sizeof(size), &size,
                sizeof(size));
  }
  if (payload->size() < least) payload->resize(least);
}

std::optional<size_t> BlockSize(absl::string_view sizes, size_t count,
                                size_t element_size) {
  size_t total = SizesSize(element_size);
  for (size_t p = 0; p < element_size; ++p) {
    const uint32_t size = PlaneSize(sizes, p);
    if (size == 0 || size > count) return std::nullopt;
    total += size;
  }
  return std::max(total, LeastSize(count, element_size));
}

absl::Status DecodeBlock(absl::string_view block, size_t count, DType dtype,
                         uint8_t* scratch, uint8_t* elements) {
  const size_t element_size = DTypeSize(dtype);
  absl::string_view rest = block.substr(SizesSize(element_size));
  for (size_t p = 0; p < element_size; ++p) {
    const absl::string_view plane = rest.substr(0, PlaneSize(block, p));
    rest.remove_prefix(plane.size());
    uint8_t* const out = scratch + p * count;
    if (plane.size() == count) {
      std::memcpy(out, plane.data(), count);
    } else if (plane.size() == 1) {
      std::fill_n(out, count, static_cast<uint8_t>(plane[0]));
    } else if (const absl::Status status =
                   coding::DecodeBytes(plane, count, out);
               !status.ok()) {
      return absl::DataLossError(
          absl::StrCat("plane ", p, ": ", status.message()));
    }
  }
  if (rest.find_first_not_of('\0') != absl::string_view::npos) {
    return absl::DataLossError("the padding after the planes is not zero");
  }
  JoinPlanes(scratch, count, dtype, elements);
  return absl::OkStatus();
}

}  // namespace kvcompress::lossless
