// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/prepared_basis.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/joint.h"
#include "kernels/kernels.h"
#include "tensor/grow.h"

namespace kvcompress::profile {
namespace {

// What is made of the groups of the profiles that are in use.
template <typename Made>
class Cache {
 public:
  std::shared_ptr<const Made> Get(const std::shared_ptr<const Profile>& profile,
                                  size_t group, Checkpoint* checkpoint) {
    if (auto found = Find(profile, group)) return found;
    // Without the lock, for which no checkpoint is asked.
    auto made = std::make_shared<const Made>(profile->content().groups[group],
                                             checkpoint);
    if (Stops(checkpoint)) return made;
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Made>& kept = BasesOf(profile).groups[group];
    if (kept == nullptr) kept = std::move(made);
    return kept;
  }

 private:
  struct Bases {
    std::weak_ptr<const Profile> owner;
    std::vector<std::shared_ptr<const Made>> groups;
  };

  std::shared_ptr<const Made> Find(
      const std::shared_ptr<const Profile>& profile, size_t group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(bases_,
                  [](const auto& each) { return each.second.owner.expired(); });
    return BasesOf(profile).groups[group];
  }

  // REQUIRES: the lock is held.
  Bases& BasesOf(const std::shared_ptr<const Profile>& profile) {
    Bases& bases = bases_[profile.get()];
    if (bases.groups.empty()) {
      bases.owner = profile;
      bases.groups.resize(profile->content().groups.size());
    }
    return bases;
  }

  std::mutex mutex_;
  std::map<const Profile*, Bases> bases_;
};

// Memory for so many bytes, zeros, in large pages where the system has such:
// products then take 0.8 of the time.
void TakeMemory(size_t bytes, coding::Lines* memory) {
  Reserve(bytes / sizeof(int16_t), memory);
  memory->resize(bytes / sizeof(int16_t));
}

size_t InTiles(size_t count, size_t tile) { return (count + tile - 1) / tile; }

// Bytes of so many inner tiles of a column tile.
size_t ColumnTileBytes(size_t inner_tiles) {
  return inner_tiles * 2 * kernels::kTileBytes;
}

// Writes right tiles, [tiles, 2], for columns [0, columns), at most kTileRows,
// of which at(k, c) returns the integers at inner places below `inner`.
template <typename At>
void FillColumnTiles(size_t inner, size_t columns, const At& at, int8_t* to) {
  for (size_t k = 0; k < inner; ++k) {
    int8_t* const tile = to + ColumnTileBytes(k / kernels::kTileInner) +
                         k % kernels::kTileInner / 4 * kernels::kTileInner +
                         k % 4;
    for (size_t c = 0; c < columns; ++c) {
      const int16_t value = at(k, c);
      tile[4 * c] = static_cast<int8_t>(value >> 8);
      tile[4 * c + kernels::kTileBytes] = static_cast<int8_t>(value & 0xff);
    }
  }
}

const std::vector<int16_t>& EncodingMatrix(const ProfileGroup& group) {
  return group.encode.empty() ? group.decode : group.encode;
}

}  // namespace

PreparedBasis::PreparedBasis(const ProfileGroup& group, Checkpoint* checkpoint)
    : kernels_(kernels::Active().joint->tiles),
      inner_(group.channels() + group.channels() % 2) {
  if (kernels_ == nullptr) {
    FillPanels(group, checkpoint);
  } else {
    FillTiles(group, checkpoint);
  }
}

void PreparedBasis::FillTiles(const ProfileGroup& group,
                              Checkpoint* checkpoint) {
  const size_t channels = group.channels();
  const std::vector<int16_t>& matrix = EncodingMatrix(group);
  blocks_ = kernels::InnerBlocks::Of(channels);
  column_tiles_ = InTiles(group.components, kernels::kTileRows);
  TakeMemory(blocks_.count * column_tiles_ * blocks_.bytes(), &right_);
  auto* to = reinterpret_cast<int8_t*>(right_.data());
  const size_t inner = blocks_.tiles * kernels::kTileInner;
  for (size_t begin = 0; begin < blocks_.inner(); begin += inner) {
    for (size_t j = 0; j < group.components;
         j += kernels::kTileRows, to += blocks_.bytes()) {
      if (Stops(checkpoint)) return;
      FillColumnTiles(
          std::min(inner, channels - std::min(begin, channels)),
          std::min(kernels::kTileRows, group.components - j),
          [&](size_t k, size_t column) {
            return matrix[(j + column) * channels + begin + k];
          },
          to);
    }
  }
}

void PreparedBasis::FillPanels(const ProfileGroup& group,
                               Checkpoint* checkpoint) {
  const size_t channels = group.channels();
  const std::vector<int16_t>& matrix = EncodingMatrix(group);
  TakeMemory(
      InTiles(group.components, kPanel) * kPanel * inner_ * sizeof(int16_t),
      &right_);
  for (size_t begin = 0; begin < group.components; begin += kPanel) {
    if (Stops(checkpoint)) return;
    const size_t columns = std::min(kPanel, group.components - begin);
    int16_t* const pairs = &right_[begin * inner_];
    for (size_t j = 0; j < columns; ++j) {
      const int16_t* const row = &matrix[(begin + j) * channels];
      for (size_t i = 0; i < channels; ++i) {
        pairs[(i / 2 * kPanel + j) * 2 + i % 2] = row[i];
      }
    }
  }
}

RestoringTiles::RestoringTiles(const ProfileGroup& group,
                               Checkpoint* checkpoint)
    : inner_tiles_(InTiles(group.components, kernels::kTileInner)) {
  TakeMemory(Memory(group), &tiles_);
  auto* const begin = reinterpret_cast<int8_t*>(tiles_.data());
  int8_t* to = begin;
  const size_t channels = group.channels();
  size_t first = 0;
  for (const ProfileTensor& tensor : group.tensors) {
    for (uint64_t h = 0; h < tensor.heads; ++h, first += tensor.channels) {
      begins_.push_back(to - begin);
      for (size_t i = 0; i < tensor.channels; i += kernels::kTileRows) {
        if (Stops(checkpoint)) return;
        FillColumnTiles(
            group.components, std::min(kernels::kTileRows, tensor.channels - i),
            [&](size_t k, size_t c) {
              return group.decode[k * channels + first + i + c];
            },
            to);
        to += ColumnTileBytes(inner_tiles_);
      }
    }
  }
}

uint64_t RestoringTiles::Memory(const ProfileGroup& group) {
  if (kernels::Active().joint->tiles == nullptr) return 0;
  size_t column_tiles = 0;
  for (const ProfileTensor& tensor : group.tensors) {
    column_tiles += tensor.heads * InTiles(tensor.channels, kernels::kTileRows);
  }
  return column_tiles *
         ColumnTileBytes(InTiles(group.components, kernels::kTileInner));
}

std::shared_ptr<const PreparedBasis> PreparedBasisOf(
    const std::shared_ptr<const Profile>& profile, size_t group,
    Checkpoint* checkpoint) {
  // Where other kernels are selected, as by tests, there may be both.
  static auto* const panels = new Cache<PreparedBasis>;
  static auto* const tiles = new Cache<PreparedBasis>;
  const bool has_tiles = kernels::Active().joint->tiles != nullptr;
  return (has_tiles ? tiles : panels)->Get(profile, group, checkpoint);
}

std::shared_ptr<const RestoringTiles> RestoringTilesOf(
    const std::shared_ptr<const Profile>& profile, size_t group,
    Checkpoint* checkpoint) {
  static auto* const cache = new Cache<RestoringTiles>;
  return cache->Get(profile, group, checkpoint);
}

}  // namespace kvcompress::profile
