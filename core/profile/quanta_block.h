// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The quanta of some tokens of a group, as products with a matrix take them.
// Internal to the library.

#ifndef KVCOMPRESS_PROFILE_QUANTA_BLOCK_H_
#define KVCOMPRESS_PROFILE_QUANTA_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/joint.h"
#include "profile/block_reader.h"

namespace kvcompress::profile {

// Quanta of a token that are not 0, and where they are.
class TokenQuanta {
 public:
  TokenQuanta(absl::Span<const uint16_t> components, const int16_t* quanta,
              bool narrow)
      : components_(components), quanta_(quanta), narrow_(narrow) {}

  size_t size() const { return components_.size(); }
  uint16_t component(size_t k) const { return components_[k]; }
  int32_t quantum(size_t k) const;

  // Whether 16-bit products with 32-bit sums suffice. Then it can be had as
  // kernels take it; there may be zeros at its end.
  bool narrow() const { return narrow_; }
  kernels::SparseToken ForKernels() const {
    return {components_.data(), quanta_, components_.size(), unit_};
  }

  // The step of the token, once it is set.
  float unit() const { return unit_; }
  void set_unit(float unit) { unit_ = unit; }

 private:
  absl::Span<const uint16_t> components_;
  const int16_t* quanta_;  // where not narrow, two for each
  float unit_ = 0;
  bool narrow_;
};

// Thread safe once made.
class QuantaBlock {
 public:
  // Adds a token by its levels that are not 0.
  void Append(absl::Span<const BlockReader::Level> levels);
  // Once all are added, of so many components: makes rows of the first ones,
  // where most of them are not 0 and that is faster.
  void MakeDense(size_t components);

  size_t tokens() const { return narrow_.size(); }
  // All components are below it.
  size_t components_end() const { return components_end_; }

  // Those of a token that its row does not have.
  TokenQuanta At(size_t token) const;
  // The first inner() components of a token, and those of the tokens after it;
  // zeros where a token is not narrow.
  const int16_t* RowAt(size_t token) const {
    return dense_.data() + token * inner_;
  }
  size_t inner() const { return inner_; }  // even

 private:
  void Append(absl::Span<const BlockReader::Level> levels, bool narrow);
  // So many first components that it pays to have them as rows.
  size_t DenseComponents(size_t components) const;

  // Where a token begins in the following two.
  struct Place {
    uint64_t component = 0;
    uint64_t quantum = 0;
  };
  std::vector<Place> places_ = {Place()};  // of each token and of the end
  std::vector<uint16_t> components_;
  std::vector<int16_t> quanta_;
  std::vector<bool> narrow_;  // of each token
  size_t components_end_ = 0;
  std::vector<int16_t> dense_;  // [tokens, inner]
  size_t inner_ = 0;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_QUANTA_BLOCK_H_
