// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A slab of a tensor in a layout, whose views several threads read. Internal to
// the library.

#ifndef KVCOMPRESS_RUN_SOURCE_SLAB_H_
#define KVCOMPRESS_RUN_SOURCE_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/layout.h"
#include "kvcompress/places.h"

namespace kvcompress {

// Read when the first view is. Thread safe.
class SourceSlab {
 public:
  // The slab lies at `begin` of a source. That and `layout` outlive this.
  SourceSlab(const PlacedSource* source, uint64_t begin, const Layout& layout)
      : source_(*source), begin_(begin), layout_(layout) {}

  // Bytes [offset, offset + size) of a view: whole elements.
  absl::StatusOr<absl::string_view> Read(uint64_t view, uint64_t offset,
                                         size_t size, std::string* buffer);

 private:
  absl::StatusOr<absl::string_view> Bytes();

  const PlacedSource& source_;
  const uint64_t begin_;
  const Layout& layout_;
  std::mutex mutex_;
  std::string own_;  // where the source has no memory
  std::optional<absl::StatusOr<absl::string_view>> bytes_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_RUN_SOURCE_SLAB_H_
