// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which kernels do the arithmetic. Every set gives the same bytes.

#ifndef KVCOMPRESS_KERNELS_H_
#define KVCOMPRESS_KERNELS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Name of the set in use: "avx512", "avx2", "sse4", "neon" or "portable". The
// fastest that this machine can run, unless another was selected. Thread safe.
absl::string_view ActiveKernels();

// Uses the set of that name from now on, in codecs that are created later.
// INVALID_ARGUMENT, naming the sets there are, when this machine has no such
// set. Thread safe.
absl::Status SelectKernels(absl::string_view name);

}  // namespace kvcompress

#endif  // KVCOMPRESS_KERNELS_H_
