// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "run/source_slab.h"

#include <algorithm>

#include "status/macros.h"

namespace kvcompress {

absl::StatusOr<absl::string_view> SourceSlab::Bytes() {
  const std::lock_guard lock(mutex_);
  if (!bytes_) bytes_ = source_.Read(begin_, layout_.slab_bytes(), &own_);
  return *bytes_;
}

absl::StatusOr<absl::string_view> SourceSlab::Read(uint64_t view,
                                                   uint64_t offset, size_t size,
                                                   std::string* buffer) {
  KVC_ASSIGN_OR_RETURN(const absl::string_view slab, Bytes());
  const uint64_t element_size = DTypeSize(layout_.source().dtype);
  const uint64_t tile = layout_.TileElements();
  if (buffer->size() < size) buffer->resize(size);
  const uint64_t end = (offset + size) / element_size;
  char* out = buffer->data();
  for (uint64_t first = offset / element_size; first < end; first += tile) {
    const uint64_t count = std::min(tile, end - first);
    layout_.Gather(view, first, count, slab.data(), out);
    out += count * element_size;
  }
  return absl::string_view(*buffer).substr(0, size);
}

}  // namespace kvcompress
