// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the values of a tensor say of its layout: the ground of the warning
// LAYOUT_SUSPECT.

#ifndef KVCOMPRESS_LAYOUT_GUESS_H_
#define KVCOMPRESS_LAYOUT_GUESS_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

class LayoutSample;

// Of one tensor. Holds 64Ki of its elements. Not thread safe.
class LayoutGuess {
 public:
  // Whether a tensor is one of numbers, and has rows enough.
  static bool Applies(const TensorSpec& spec);

  // REQUIRES: Applies(spec). Its role counts: the layout of keys is clearer.
  explicit LayoutGuess(const TensorSpec& spec);
  ~LayoutGuess();

  // Takes the next bytes of the tensor, in the order of the file.
  void Add(absl::string_view bytes);

  // A layout as it can be declared, with N for a size that the values do not
  // show. Empty where the tensor may be [batch, heads, tokens, head_dim], or no
  // cache. REQUIRES: all of the tensor was added.
  std::string Likely() const;

 private:
  std::unique_ptr<LayoutSample> sample_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_LAYOUT_GUESS_H_
