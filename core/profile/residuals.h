// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What makes the restored elements of a tensor of a group those of the source,
// bit by bit. Specified in core/FORMAT.md, "lossless-profile". Internal to the
// library.

#ifndef KVCOMPRESS_PROFILE_RESIDUALS_H_
#define KVCOMPRESS_PROFILE_RESIDUALS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/dtype.h"
#include "kvcompress/profile.h"
#include "profile/group_format.h"

namespace kvcompress::profile {

// Whether elements of the type can have residuals: F16 and BF16.
bool TakesResiduals(DType dtype);

// The elements of such a type, with zeros for those that are not finite.
std::string FiniteElements(DType dtype, absl::string_view source);

// A tensor [heads, tokens, channels], with the heads of all batches.
struct ResidualShape {
  DType dtype = DType::kBF16;  // REQUIRES: TakesResiduals
  uint64_t batches = 0;
  uint64_t heads = 0;  // of a batch
  uint64_t tokens = 0;
  uint64_t channels = 0;

  // Tokens of a head that are a block; the last of a head may have fewer.
  uint64_t block_tokens() const {
    constexpr uint64_t kElements = uint64_t{1} << 16;
    return std::max<uint64_t>(1, kElements / channels);
  }
  uint64_t blocks_of_head() const {
    return (tokens + block_tokens() - 1) / block_tokens();
  }
};

ResidualShape ResidualShapeOf(const GroupShape& shape,
                              const ProfileGroup& group, size_t member);

// The residuals of elements `source`, of which `restored` is known to a
// decoder. Both have all elements of the tensor. Anything when the checkpoint,
// which may be null, stops.
std::string EncodeResiduals(const ResidualShape& shape,
                            absl::string_view source,
                            absl::string_view restored, Checkpoint* checkpoint);

// The residuals of a tensor. Immutable once made, and thread safe.
class Residuals {
 public:
  // Finds the blocks. DATA_LOSS says which rule of the format the bytes, which
  // are not trusted, break. The status of the checkpoint, which may be null,
  // when that stops.
  static absl::StatusOr<Residuals> Parse(absl::string_view bytes,
                                         const ResidualShape& shape,
                                         Checkpoint* checkpoint);

  // What those of such a tensor hold at most, in bytes.
  static uint64_t Memory(const ResidualShape& shape);

  const ResidualShape& shape() const { return shape_; }

 private:
  friend class ResidualReader;
  struct Block {
    size_t begin = 0;  // in bytes_, behind the header
    uint32_t size = 0;
    uint32_t words = 0;
    uint32_t escapes = 0;
    bool raw = false;
  };

  ResidualShape shape_;
  std::string bytes_;
  std::vector<uint16_t> levels_;  // of each head of a batch and channel
  std::vector<Block> blocks_;
};

// Reads blocks of residuals. Not thread safe.
class ResidualReader {
 public:
  // What one holds at most, in bytes.
  static uint64_t Memory(uint64_t channels);

  // Replaces the restored elements of a block, the tokens from `block` times
  // block_tokens() on, of a head; heads are counted on over batches. DATA_LOSS
  // says which rule of the format the block breaks; then elements are anything.
  absl::Status Apply(const Residuals& residuals, uint64_t head, uint64_t block,
                     uint8_t* elements);

 private:
  std::vector<uint8_t> tables_;
  std::vector<const uint8_t*> rows_;
  std::vector<int8_t> symbols_;
  std::vector<int32_t> predicted_;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_RESIDUALS_H_
