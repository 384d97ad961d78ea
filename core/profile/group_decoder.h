// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The payload of a group, decoded to quanta, and tensors restored from these,
// each by itself. Specified in core/FORMAT.md, "klt-profile". Internal to the
// library.

#ifndef KVCOMPRESS_PROFILE_GROUP_DECODER_H_
#define KVCOMPRESS_PROFILE_GROUP_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/profile.h"
#include "profile/group_exceptions.h"
#include "profile/group_format.h"

namespace kvcompress::profile {

// Immutable once made, and thread safe.
class GroupQuanta {
 public:
  // Reads all of a payload, which is not trusted. DATA_LOSS says which rule of
  // the format it breaks; also where it is of another group.
  static absl::StatusOr<std::shared_ptr<const GroupQuanta>> Parse(
      absl::string_view payload, std::shared_ptr<const Profile> profile,
      size_t group, GroupShape shape);

  // The most that one of such a group holds, in bytes.
  static uint64_t MaxMemory(const ProfileGroup& group, const GroupShape& shape);

  const GroupHeader& header() const { return header_; }
  const GroupShape& shape() const { return shape_; }
  const ProfileContent& content() const { return profile_->content(); }
  const ProfileGroup& group() const { return content().groups[header_.group]; }

  // The quanta of a token that are not 0. Tokens of all batches are counted on.
  struct Token {
    absl::Span<const uint16_t> components;
    absl::Span<const int32_t> quanta;
    float unit = 0;       // the step of the token
    bool narrow = false;  // 16-bit products with 32-bit sums suffice
  };
  Token TokenAt(uint64_t token) const;

  // What the scales of a member are multiplied by.
  float UnitOf(size_t member) const { return units_[member]; }

  // Of a member, for ExceptionCursor.
  absl::string_view ExceptionsOf(size_t member) const {
    return exceptions_.empty() ? absl::string_view() : exceptions_[member];
  }

  // The sink `token` of a head: elements, or a scale and codes.
  absl::string_view Sink(size_t member, uint64_t batch, uint64_t head,
                         uint64_t token) const;

 private:
  class Parser;

  GroupQuanta() = default;

  std::shared_ptr<const Profile> profile_;
  GroupShape shape_;
  GroupHeader header_;
  std::vector<float> units_;     // of each member
  std::vector<int8_t> offsets_;  // of the tokens of a batch; empty: all 0
  std::string sinks_;
  std::vector<uint64_t> sink_begins_;  // of each member
  std::vector<uint64_t> begins_;       // of each token and of the end
  std::vector<uint16_t> components_;
  std::vector<int32_t> quanta_;
  std::vector<bool> narrow_;
  std::vector<std::string> exceptions_;  // of each member; empty: none
};

// Restores one tensor of a group. Not thread safe.
class MemberRestorer {
 public:
  // `member` is the index of the tensor in its group.
  MemberRestorer(std::shared_ptr<const GroupQuanta> quanta, size_t member);

  uint64_t heads() const { return tensor_.heads; }
  uint64_t channels() const { return tensor_.channels; }
  DType dtype() const { return dtype_; }

  // The elements of tokens [first, first + count) of a head; fastest where
  // calls go on in the order of the tensor.
  void Restore(uint64_t batch, uint64_t head, uint64_t first, size_t count,
               uint8_t* elements);

 private:
  // All but exceptions.
  void RestoreCoded(uint64_t batch, uint64_t head, uint64_t first, size_t count,
                    uint8_t* elements);
  void TakeHead(uint64_t head);
  void RestoreToken(uint64_t batch, uint64_t token, float* values);
  void Turn(uint64_t first, size_t count, float* values);

  const std::shared_ptr<const GroupQuanta> quanta_;
  const size_t member_;
  const ProfileTensor& tensor_;
  const DType dtype_;
  size_t first_channel_ = 0;  // of the member in the group
  ExceptionCursor exceptions_;
  uint64_t head_ = UINT64_MAX;
  std::vector<int16_t> basis_;  // [components, channels] of the head
  std::vector<float> scales_;   // of the channels of the head
  std::vector<int32_t> narrow_;
  std::vector<int64_t> wide_;
  std::vector<float> values_;
  std::vector<float> pairs_;
  std::vector<float> table_;
  uint64_t table_first_ = 0;
  size_t table_count_ = 0;
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_GROUP_DECODER_H_
