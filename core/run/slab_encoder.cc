// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "run/slab_encoder.h"

#include <algorithm>
#include <memory>

#include "kvcompress/checkpoint.h"
#include "pipeline/views.h"
#include "run/source_slab.h"
#include "status/macros.h"
#include "tensor/grow.h"
#include "tensor/slabs.h"

namespace kvcompress {

void SlabEncoder::Begin(const Layout& layout) {
  layout_ = &layout;
  first_view_ = units_.index();
}

absl::Status SlabEncoder::EncodeFrom(const PlacedSource& source,
                                     uint64_t position,
                                     CompressOutput* output) {
  const auto slab = std::make_shared<SourceSlab>(&source, position, *layout_);
  for (uint64_t i = 0; i < layout_->views_per_slab(); ++i) {
    const uint64_t view = units_.index() - first_view_;
    const auto read = [slab, view](uint64_t offset, size_t size,
                                   std::string* buffer) {
      return slab->Read(view, offset, size, buffer);
    };
    KVC_RETURN_IF_ERROR(units_.Start(read, /*restored=*/nullptr, output));
    KVC_RETURN_IF_ERROR(units_.Finish(output));
  }
  return absl::OkStatus();
}

absl::Status SlabEncoder::Append(absl::string_view part, bool last,
                                 CompressOutput* output) {
  while (!part.empty()) {
    const size_t size = layout_->slab_bytes();
    Reserve(size, &slab_);
    const absl::string_view fitting = part.substr(0, size - slab_.size());
    slab_.append(fitting.data(), fitting.size());
    part.remove_prefix(fitting.size());
    if (slab_.size() < size || (part.empty() && last)) continue;
    KVC_RETURN_IF_ERROR(Encode(output));
  }
  return absl::OkStatus();
}

// Views come one after the other. What they are restored to takes the place of
// what they were.
absl::Status SlabEncoder::Encode(CompressOutput* output) {
  Checkpoint* const checkpoint = units_.hints().checkpoint;
  for (uint64_t i = 0; i < layout_->views_per_slab(); ++i) {
    const uint64_t view = units_.index() - first_view_;
    ViewWriter restored(*layout_, view, slab_.data());
    KVC_RETURN_IF_ERROR(units_.Start(
        /*read=*/nullptr, options_.reconstruct ? &restored : nullptr, output));
    const uint64_t element_size = DTypeSize(units_.current().spec.dtype);
    const uint64_t elements = units_.size() / element_size;
    const uint64_t tile = layout_->TileElements();
    for (uint64_t first = 0; first < elements; first += tile) {
      if (Stops(checkpoint)) return checkpoint->status();
      const uint64_t count = std::min(tile, elements - first);
      tile_.resize(count * element_size);
      layout_->Gather(view, first, count, slab_.data(), tile_.data());
      KVC_RETURN_IF_ERROR(units_.Append(tile_, output));
    }
    KVC_RETURN_IF_ERROR(units_.Finish(output));
  }
  if (options_.reconstruct) {
    InSlabs(checkpoint, slab_.size(), [&](size_t first, size_t size) {
      output->reconstructed.append(slab_, first, size);
    });
  }
  slab_.clear();
  return StatusOf(checkpoint);
}

}  // namespace kvcompress
