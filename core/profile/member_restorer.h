// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tensors of a group, restored from its quanta, each by itself. Specified in
// core/FORMAT.md, "klt-profile". Internal to the library.

#ifndef KVCOMPRESS_PROFILE_MEMBER_RESTORER_H_
#define KVCOMPRESS_PROFILE_MEMBER_RESTORER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/joint.h"
#include "kvcompress/dtype.h"
#include "kvcompress/profile.h"
#include "profile/group_decoder.h"
#include "profile/group_exceptions.h"
#include "profile/group_format.h"
#include "profile/residuals.h"
#include "transform/basis.h"

namespace kvcompress::profile {

// Restores one tensor of a group. Not thread safe.
class MemberRestorer {
 public:
  // What one holds at most, in bytes.
  static uint64_t Memory(const ProfileGroup& group, size_t member,
                         const GroupShape& shape);

  // `member` is the index of the tensor in its group.
  MemberRestorer(std::shared_ptr<const GroupQuanta> quanta, size_t member);

  uint64_t heads() const { return tensor_.heads; }
  uint64_t channels() const { return tensor_.channels; }
  DType dtype() const { return dtype_; }
  // So many tokens of a head are restored in some ten milliseconds, whatever
  // they are.
  size_t tokens_at_once() const;

  // The elements of tokens [first, first + count) of a head; fastest where
  // calls go on in the order of the tensor. DATA_LOSS says which rule of the
  // format residuals break.
  absl::Status Restore(uint64_t batch, uint64_t head, uint64_t first,
                       size_t count, uint8_t* elements);
  // The same tokens are not needed: without it, the next call may look at all
  // exceptions in between.
  void Skip(uint64_t batch, uint64_t head, uint64_t first, size_t count);

 private:
  // Restores the block of residuals that has a token, and returns its
  // elements.
  absl::StatusOr<const uint8_t*> RestoreBlock(uint64_t batch, uint64_t head,
                                              uint64_t block);
  // All but exceptions and residuals.
  void RestoreCoded(uint64_t batch, uint64_t head, uint64_t first, size_t count,
                    uint8_t* elements);
  uint64_t ElementAt(uint64_t batch, uint64_t head, uint64_t token) const;
  void TakeHead(uint64_t head);
  // Tokens but sinks, before keys are rotated; `token` counts on over batches.
  void RestoreTokens(uint64_t token, size_t count, float* values);
  // The same of tokens that lie together.
  void RestoreRun(uint64_t token, const GroupQuanta::Run& run, float* values);
  // The channels of the head as the right factor of a product.
  const int16_t* Factor();
  // RestoreRun where the group has tiles.
  void RestoreTiles(uint64_t token, const GroupQuanta::Run& run, float* values);
  // Of the head, where tiles do not have it, or tokens are not narrow.
  void TakeBasis();
  // Those of some tokens that are not narrow.
  void RestoreWideOf(uint64_t token, size_t count, float* values);
  void RestoreWide(const TokenQuanta& token, float* values);
  void Turn(uint64_t first, size_t count, float* values);

  const std::shared_ptr<const GroupQuanta> quanta_;
  const size_t member_;
  const ProfileTensor& tensor_;
  const DType dtype_;
  size_t first_channel_ = 0;  // of the member in the group
  size_t first_head_ = 0;     // as that
  ExceptionCursor exceptions_;
  uint64_t head_ = UINT64_MAX;
  // Of the head, its channels in strips, the last filled up with zeros.
  coding::Lines basis_;  // [strips, components in use, kStripColumns]
  std::vector<float> scales_;
  std::vector<float> means_;
  coding::Lines
      factor_;  // [components, channels in strips], in pairs; or empty
  std::vector<kernels::SparseToken> tokens_;
  std::vector<int32_t> product_;
  std::vector<float> strip_;
  std::vector<float> values_;
  std::vector<float> pairs_;
  std::vector<float> token_units_;  // with tiles
  ResidualReader residuals_;
  std::vector<uint8_t> block_;          // elements of the block restored last
  uint64_t block_number_ = UINT64_MAX;  // counted on over heads
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_MEMBER_RESTORER_H_
