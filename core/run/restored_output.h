// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is given back of an artefact, in order: bytes as they are decoded, and
// slabs of tensors in a layout, which their views are written into. Internal to
// the library.

#ifndef KVCOMPRESS_RUN_RESTORED_OUTPUT_H_
#define KVCOMPRESS_RUN_RESTORED_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "kvcompress/layout.h"
#include "pipeline/spare_strings.h"
#include "plan/decompress_plan.h"

namespace kvcompress {

// Tensors and views are numbered in the order in which they are given back. Not
// thread safe.
class RestoredOutput {
 public:
  // The plan outlives this.
  explicit RestoredOutput(const DecompressPlan& plan) : plan_(plan) {}

  // The next bytes that are given back, for the caller to fill in where none
  // are ready.
  std::string* bytes() { return &ready_; }
  bool empty() const { return ready_.empty() && ready_slab_ == 0; }

  // Begins the one of that number, which is a tensor of the header.
  void Start(size_t number, size_t tensor);
  // Whether it is a view; it is one of a tensor in a layout.
  bool is_view() const { return layout_ != nullptr; }
  // Makes space for what the view is restored to: it is given back.
  void OpenView(size_t number);
  bool is_open() const { return view_.has_value(); }
  // Takes bytes of the view. REQUIRES: is_open().
  void Append(absl::string_view bytes) { view_->Append(bytes); }
  // The view is complete, and perhaps its slab or its tensor.
  void FinishView(size_t number);

  // Moves what is ready to `*restored`, which then has at most `most` bytes.
  // Returns false if some remains. What comes whole changes hands with `whole`,
  // unless that is null.
  bool Give(size_t most, SpareString* whole, std::string* restored);

 private:
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };

  const DecompressPlan& plan_;
  std::string ready_;  // the next bytes to be given
  size_t given_ = 0;   // bytes of it, or of the slab, that were

  // The tensor in a layout that is being decoded, as it is given back; null
  // when it is none.
  const Layout* layout_ = nullptr;
  size_t first_view_ = 0;               // its number
  std::unique_ptr<char[], Free> slab_;  // of plan_.slab_memory bytes
  uint64_t ready_slab_ = 0;  // bytes of it, where these are what is ready
  std::optional<ViewWriter> view_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_RUN_RESTORED_OUTPUT_H_
