// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Encodes a tensor in a layout slab by slab, each view of it as a unit.
// Internal to the library.

#ifndef KVCOMPRESS_RUN_SLAB_ENCODER_H_
#define KVCOMPRESS_RUN_SLAB_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"
#include "kvcompress/layout.h"
#include "kvcompress/places.h"
#include "run/unit_encoder.h"

namespace kvcompress {

// Not thread safe.
class SlabEncoder {
 public:
  // All outlive this.
  SlabEncoder(const CompressOptions& options, UnitEncoder* units)
      : options_(options), units_(*units) {}

  // Begins a tensor, whose first view is the next unit. The layout outlives it.
  void Begin(const Layout& layout);
  // Whether all slabs are encoded.
  bool done() const { return units_.index() == first_view_ + layout_->views(); }

  // Whether slabs are encoded where they lie: by jobs that read them.
  bool by_places() const {
    return units_.by_jobs() && !units_.has_groups() && !options_.reconstruct;
  }
  // Encodes the next slab, which begins at `position` of the source, so.
  absl::Status EncodeFrom(const PlacedSource& source, uint64_t position,
                          CompressOutput* output);

  // Takes the next bytes of the tensor and encodes what slabs these complete,
  // but for the last slab of the tensor.
  absl::Status Append(absl::string_view part, bool last,
                      CompressOutput* output);
  // Encodes the slab that was collected.
  absl::Status Encode(CompressOutput* output);

 private:
  const CompressOptions& options_;
  UnitEncoder& units_;
  const Layout* layout_ = nullptr;
  size_t first_view_ = 0;
  std::string slab_;
  std::string tile_;  // of a view
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_RUN_SLAB_ENCODER_H_
