// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/kernels.h"

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/amx.h"
#include "kernels/highway/sets.h"
#include "kernels/joint.h"
#include "kernels/tiles.h"
#include "kvcompress/error.h"
#include "kvcompress/kernels.h"

namespace kvcompress {
namespace kernels {
namespace {

// Nothing until a set is selected.
std::atomic<const KernelSet*> selected = nullptr;

}  // namespace

const KernelSet* WithTiles(const KernelSet& base, const TileKernels* tiles,
                           const char* name) {
  auto* const joint = new JointKernels(*base.joint);
  joint->tiles = tiles;
  auto* const set = new KernelSet(base);
  set->joint = joint;
  set->name = name;
  return set;
}

absl::Span<const KernelSet* const> Available() {
  static const std::vector<const KernelSet*>* const sets = [] {
    auto* const all = new std::vector<const KernelSet*>(HighwaySets());
    all->push_back(&Portable());
    all->push_back(WithTiles(Portable(), &PortableTiles(), "portable-tiles"));
    return all;
  }();
  return *sets;
}

const KernelSet& Active() {
  const KernelSet* const set = selected.load(std::memory_order_relaxed);
  return set != nullptr ? *set : *Available().front();
}

}  // namespace kernels

bool AllowTiles() { return kernels::AllowAmx(); }

absl::string_view ActiveKernels() { return kernels::Active().name; }

absl::Status SelectKernels(absl::string_view name) {
  for (const kernels::KernelSet* set : kernels::Available()) {
    if (name == set->name) {
      kernels::selected.store(set, std::memory_order_relaxed);
      return absl::OkStatus();
    }
  }
  const auto append = [](std::string* out, const kernels::KernelSet* set) {
    absl::StrAppend(out, set->name);
  };
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("this machine has no kernels ", QuoteName(name), ", only ",
                   absl::StrJoin(kernels::Available(), ", ", append)),
      {.reason = "INVALID_KERNELS"});
}

}  // namespace kvcompress
