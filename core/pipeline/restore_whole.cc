// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/decompressor.h"

namespace kvcompress {

absl::StatusOr<std::string> RestoreWhole(absl::string_view artefact) {
  Decompressor decompressor({}, {});
  std::string restored;
  for (bool more = true; more;) {
    const absl::StatusOr<bool> step =
        decompressor.Restore(&artefact, SIZE_MAX, &restored);
    if (!step.ok()) return step.status();
    more = *step;
  }
  if (absl::Status status = decompressor.Finish().status(); !status.ok()) {
    return status;
  }
  return restored;
}

}  // namespace kvcompress
