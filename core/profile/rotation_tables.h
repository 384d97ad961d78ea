// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rotations of tokens of a group, which its members share. Internal to the
// library.

#ifndef KVCOMPRESS_PROFILE_ROTATION_TABLES_H_
#define KVCOMPRESS_PROFILE_ROTATION_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/types/span.h"
#include "kvcompress/profile.h"
#include "profile/group_format.h"

namespace kvcompress::profile {

// The tables that were asked for last. Thread safe.
class RotationTables {
 public:
  // The table of so many tokens from a position on, for one of the rotations,
  // which are the same with each call; see FillTable. At most kMostOfTable
  // numbers.
  std::shared_ptr<const std::vector<float>> Get(
      absl::Span<const ProfileRotation> rotations, size_t rotation,
      uint64_t position, size_t count) const;

  // What they take at most, in bytes, for the tokens of a group.
  static uint64_t Memory(const ProfileGroup& group, const GroupShape& shape);

 private:
  struct Table {
    size_t rotation;
    uint64_t position;
    size_t count;
    std::shared_ptr<const std::vector<float>> table;
  };
  static constexpr size_t kTables = 16;
  // Channels of the tokens that a member restores at once.
  static constexpr uint64_t kMostOfTable = 64 << 10;

  mutable std::mutex mutex_;
  mutable std::vector<Table> tables_;
  mutable size_t next_ = 0;  // to be replaced
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_ROTATION_TABLES_H_
