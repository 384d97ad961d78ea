// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "run/restored_output.h"

#include <algorithm>
#include <new>

namespace kvcompress {

void RestoredOutput::Start(size_t number, size_t tensor) {
  view_.reset();
  if (layout_ != nullptr) return;
  const std::vector<LaidOutTensor>& laid_out = plan_.header.laid_out;
  const auto next = std::lower_bound(
      laid_out.begin(), laid_out.end(), tensor,
      [](const LaidOutTensor& each, size_t at) { return each.first < at; });
  if (next == laid_out.end() || next->first != tensor) return;
  layout_ = &plan_.LaidOut(static_cast<size_t>(next - laid_out.begin()));
  first_view_ = number;
}

void RestoredOutput::OpenView(size_t number) {
  if (view_) return;
  if (slab_ == nullptr) {
    // Zeros that the system need not write before they are touched.
    slab_.reset(static_cast<char*>(std::calloc(plan_.slab_memory + 1, 1)));
    if (slab_ == nullptr) throw std::bad_alloc();
  }
  view_.emplace(*layout_, number - first_view_, slab_.get());
}

void RestoredOutput::FinishView(size_t number) {
  const uint64_t done = number - first_view_ + 1;
  if (view_ && done % layout_->views_per_slab() == 0) {
    ready_slab_ = layout_->slab_bytes();
  }
  if (done == layout_->views()) layout_ = nullptr;
}

bool RestoredOutput::Give(size_t most, SpareString* whole,
                          std::string* restored) {
  const absl::string_view ready =
      ready_slab_ == 0 ? absl::string_view(ready_)
                       : absl::string_view(slab_.get(), ready_slab_);
  if (ready.empty()) return true;
  const size_t room = most > restored->size() ? most - restored->size() : 0;
  if (whole != nullptr && ready_slab_ == 0 && given_ == 0 &&
      restored->empty() && ready.size() <= room) {
    restored->swap(ready_);
    whole->PutBack(&ready_);
    return true;
  }
  const absl::string_view given = ready.substr(given_, room);
  restored->append(given.data(), given.size());
  given_ += given.size();
  if (given_ < ready.size()) return false;
  given_ = 0;
  ready_slab_ = 0;
  if (whole != nullptr) {
    whole->PutBack(&ready_);
  } else if (ready_.size() > plan_.aside_memory) {
    std::string().swap(ready_);  // a header is large, and comes once
  } else {
    ready_.clear();
  }
  return true;
}

}  // namespace kvcompress
