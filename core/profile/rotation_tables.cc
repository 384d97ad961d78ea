// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/rotation_tables.h"

#include <algorithm>
#include <utility>

#include "profile/rotation.h"

namespace kvcompress::profile {

std::shared_ptr<const std::vector<float>> RotationTables::Get(
    absl::Span<const ProfileRotation> rotations, size_t rotation,
    uint64_t position, size_t count) const {
  {
    const std::lock_guard lock(mutex_);
    for (const Table& each : tables_) {
      if (each.rotation == rotation && each.position == position &&
          each.count == count) {
        return each.table;
      }
    }
  }
  auto table = std::make_shared<std::vector<float>>();
  FillTable(rotations[rotation], position, count, table.get());
  const std::lock_guard lock(mutex_);
  Table made = {rotation, position, count, table};
  if (tables_.size() < kTables) {
    tables_.push_back(std::move(made));
  } else {
    tables_[next_++ % kTables] = std::move(made);
  }
  return table;
}

uint64_t RotationTables::Memory(const ProfileGroup& group,
                                const GroupShape& shape) {
  uint64_t channels = 0;
  for (const ProfileTensor& tensor : group.tensors) {
    if (tensor.rotation) {
      channels = std::max<uint64_t>(channels, tensor.channels);
    }
  }
  return kTables * sizeof(float) *
         std::min(kMostOfTable, shape.tokens * channels);
}

}  // namespace kvcompress::profile
