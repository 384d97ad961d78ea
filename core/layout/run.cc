// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "layout/run.h"

#include <cstring>

namespace kvcompress {
namespace {

// One of the two is only read.
template <typename Element, bool kGather>
void CopyElements(const Run& run, char* slab, char* packed) {
  const auto copy = [&](uint64_t row, uint64_t channel) {
    char* const in_slab = slab + (run.slab + row * run.row_stride +
                                  channel * run.channel_stride) *
                                     sizeof(Element);
    char* const in_tile =
        packed + (run.packed + row * run.channels + channel) * sizeof(Element);
    std::memcpy(kGather ? in_tile : in_slab, kGather ? in_slab : in_tile,
                sizeof(Element));
  };
  if (run.row_stride < run.channel_stride) {
    for (uint64_t channel = 0; channel < run.channels; ++channel) {
      for (uint64_t row = 0; row < run.rows; ++row) copy(row, channel);
    }
    return;
  }
  for (uint64_t row = 0; row < run.rows; ++row) {
    for (uint64_t channel = 0; channel < run.channels; ++channel) {
      copy(row, channel);
    }
  }
}

template <bool kGather>
void Copy(const Run& run, size_t element_size, char* slab, char* packed) {
  if (run.channel_stride == 1) {
    const size_t size = run.channels * element_size;
    for (uint64_t row = 0; row < run.rows; ++row) {
      char* const in_slab =
          slab + (run.slab + row * run.row_stride) * element_size;
      char* const in_tile = packed + run.packed * element_size + row * size;
      std::memcpy(kGather ? in_tile : in_slab, kGather ? in_slab : in_tile,
                  size);
    }
    return;
  }
  switch (element_size) {
    case 1:
      return CopyElements<uint8_t, kGather>(run, slab, packed);
    case 2:
      return CopyElements<uint16_t, kGather>(run, slab, packed);
    case 4:
      return CopyElements<uint32_t, kGather>(run, slab, packed);
    default:
      return CopyElements<uint64_t, kGather>(run, slab, packed);
  }
}

}  // namespace

void GatherRun(const Run& run, size_t element_size, const char* slab,
               char* packed) {
  Copy<true>(run, element_size, const_cast<char*>(slab), packed);
}

void ScatterRun(const Run& run, size_t element_size, const char* packed,
                char* slab) {
  Copy<false>(run, element_size, slab, const_cast<char*>(packed));
}

}  // namespace kvcompress
