// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "tensor/workers.h"

namespace kvcompress {

absl::Status TryForEach(
    Workers* workers, size_t count, Checkpoint* checkpoint,
    absl::FunctionRef<absl::Status(size_t index, Checkpoint* checkpoint)>
        work) {
  struct Place {
    explicit Place(Checkpoint* its) : checkpoint(its) {}
    Checkpoint* const checkpoint;
  };
  Place own(checkpoint);
  AtPlaces<Place> places(workers, &own, checkpoint);
  std::vector<absl::Status> statuses(count);
  ForEach(workers, count, [&](size_t index, size_t place) {
    Checkpoint* const here = places[place].checkpoint;
    statuses[index] = Stops(here) ? here->status() : work(index, here);
  });
  if (Stops(checkpoint)) return checkpoint->status();
  for (absl::Status& status : statuses) {
    if (!status.ok()) return std::move(status);
  }
  return absl::OkStatus();
}

}  // namespace kvcompress
