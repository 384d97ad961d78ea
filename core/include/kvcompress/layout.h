// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Layouts (core/FORMAT.md, "Layouts"): tensors whose dimensions are not
// [batch, heads, tokens, head_dim], and the views that they are coded as. A
// view is a tensor in that order, of one layer and one role; codecs and metrics
// know nothing else.

#ifndef KVCOMPRESS_LAYOUT_H_
#define KVCOMPRESS_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// Longest text of a layout, in bytes.
inline constexpr size_t kMaxLayoutText = 256;
// Most views that layouts add to the tensors of a file, of one tensor and of
// all.
inline constexpr uint64_t kMaxViews = 16384;
// Longest name of a tensor that has several views, in bytes: each has the name.
inline constexpr size_t kMaxLaidOutName = 512;

// INVALID_ARGUMENT, reason INVALID_LAYOUT, for a text that is no layout. Empty
// text is one: the default.
absl::Status ValidateLayout(absl::string_view text);

// Whether a tensor of this layout is coded as it is: that is so without a
// layout, and for `bhtd` and `flat`. REQUIRES: ValidateLayout accepts it.
bool IsPlainLayout(absl::string_view text);

// Whether a view is of the rotated channels behind a latent, `r` of `(d+r)`.
bool IsRotatedPart(const TensorSpec& view);

// A tensor in a layout. Thread safe.
class Layout {
 public:
  // INVALID_ARGUMENT, naming the tensor and the dimension: INVALID_LAYOUT as
  // ValidateLayout, LAYOUT_MISMATCH when the tensor has another shape or needs
  // a size that the text does not state, TOO_MANY_VIEWS past kMaxViews. `flat`
  // is no layout here.
  static absl::StatusOr<Layout> Of(absl::string_view text,
                                   const TensorSpec& source);

  // The tensor; its field `layout` is text().
  const TensorSpec& source() const { return source_; }
  // The one way to write it: notation, and sizes that the shape does not
  // determine.
  const std::string& text() const { return source_.layout; }
  uint64_t source_bytes() const { return slabs_ * slab_bytes(); }

  uint64_t views() const { return slabs_ * views_per_slab_; }
  // A view as codecs take it. Its name is the source's, with what sets it apart
  // from the other views in brackets.
  TensorSpec View(uint64_t index) const;

  // The bytes of the source are slabs, one after the other, and the views of
  // one slab come before those of the next: no more need be held.
  uint64_t slabs() const { return slabs_; }
  uint64_t slab_bytes() const { return slab_elements_ * element_size_; }
  uint64_t views_per_slab() const { return views_per_slab_; }

  // Copies elements [first, first + count) of a flattened view out of its slab,
  // or into it.
  void Gather(uint64_t view, uint64_t first, uint64_t count, const char* slab,
              char* out) const;
  void Scatter(uint64_t view, uint64_t first, uint64_t count, const char* in,
               char* slab) const;

  // Elements of a view that are few enough for a processor's nearer caches.
  uint64_t TileElements() const;

  // The same tensor with tokens [first, second) alone. INVALID_ARGUMENT, reason
  // INVALID_TOKENS, for a range that is empty or not within the tokens, or does
  // not begin and end with a page where tokens are in pages.
  absl::StatusOr<Layout> Narrowed(std::pair<uint64_t, uint64_t> tokens) const;

 private:
  struct Axis {
    bool present = false;
    uint64_t size = 1;
    uint64_t stride = 0;  // elements
  };
  // A traversal of a slab in the order of a view, outermost first: batch, outer
  // and inner heads, pages, tokens of a page or all tokens.
  struct Walk {
    uint64_t offset = 0;  // elements
    uint64_t channels = 0;
    uint64_t channel_stride = 1;
  };
  static constexpr size_t kLoops = 5;

  Layout() = default;
  Walk WalkOf(uint64_t view_in_slab) const;
  template <typename CopyRun>
  void Visit(uint64_t view, uint64_t first, uint64_t count, CopyRun copy) const;

  const Axis& axis(char letter) const;

  TensorSpec source_;
  size_t element_size_ = 1;
  std::array<Axis, 10> axes_;
  std::array<Axis, kLoops> loops_;
  std::vector<char> view_axes_;  // of `l` and `2`, outermost first
  size_t prefix_axes_ = 0;       // of these, how many only count slabs
  uint64_t slabs_ = 1;
  uint64_t slab_elements_ = 0;
  uint64_t views_per_slab_ = 1;
};

// Puts the bytes of a view, in order and cut anywhere, where they belong in a
// slab. Not thread safe.
class ViewWriter {
 public:
  // `layout` and `slab`, of slab_bytes(), outlive this.
  ViewWriter(const Layout& layout, uint64_t view, char* slab);

  // REQUIRES: no more bytes than the view has, in all.
  void Append(absl::string_view bytes);

 private:
  const Layout& layout_;
  const uint64_t view_;
  const size_t element_size_;
  char* const slab_;
  uint64_t done_ = 0;     // elements
  std::string straddle_;  // part of an element
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_LAYOUT_H_
