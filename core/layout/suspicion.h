// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Finds out from a few values of a tensor whether its dimensions are what they
// are taken for. What one token says is much like what its neighbour says, and
// one head has nothing to do with the next: so the rows of a cache are alike
// along its tokens, and along nothing else. Internal to the library.

#ifndef KVCOMPRESS_LAYOUT_SUSPICION_H_
#define KVCOMPRESS_LAYOUT_SUSPICION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvcompress/tensor.h"
#include "kvcompress/warning.h"

namespace kvcompress {

// A window of rows from the middle of a tensor. Not thread safe.
class LayoutSample {
 public:
  static constexpr uint64_t kMaxElements = 64 << 10;

  // Whether a tensor is one of numbers, and has rows enough.
  static bool Applies(const TensorSpec& spec);
  // Bytes that one holds at most. Likely takes 16 for each other element, and
  // releases them. REQUIRES: Applies(spec).
  static uint64_t MemoryFor(const TensorSpec& spec);

  // REQUIRES: Applies(spec).
  explicit LayoutSample(const TensorSpec& spec);

  // Takes the next bytes of the tensor.
  void Add(absl::string_view bytes);

  // The layout that the tensor is likely to have, or empty when it may be what
  // it seems: [batch, heads, tokens, head_dim], or no cache. REQUIRES: all of
  // the tensor was added.
  absl::string_view Likely() const;

 private:
  struct Alikeness;
  Alikeness Compare(const std::vector<float>& values) const;
  Alikeness CompareColumns(const std::vector<float>& values) const;

  const TensorSpec spec_;
  // As [a, b, c, channels]: a is what comes before the last three, all in one.
  std::array<uint64_t, 4> shape_;
  std::array<uint64_t, 3> window_;
  std::array<uint64_t, 3> origin_;
  uint64_t position_ = 0;  // bytes of the tensor that came
  uint64_t next_run_ = 0;  // of rows that lie together
  std::string bytes_;
};

// Looks at some tensors of a cache. Not thread safe.
class LayoutSuspicions {
 public:
  // So many tensors are looked at.
  static constexpr uint64_t kTensors = 8;

  // There are `count` tensors to choose from.
  void Begin(uint64_t count) { count_ = count; }

  // What the bytes of the next of them are to be added to; null for one that is
  // not looked at.
  std::unique_ptr<LayoutSample> StartTensor(const TensorSpec& spec);
  // The same tensor, which is in the layout that it seems to be, or likely to
  // be in this one.
  void FinishTensor(const TensorSpec& spec, absl::string_view likely);

  // One warning for each layout that some are likely to have.
  void Report(std::vector<Warning>* warnings) const;

 private:
  struct Suspects {
    std::string first;  // name of a tensor
    uint64_t count = 0;
  };

  uint64_t count_ = 0;
  uint64_t index_ = 0;
  uint64_t looked_at_ = 0;
  std::map<std::string, Suspects> suspects_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_LAYOUT_SUSPICION_H_
