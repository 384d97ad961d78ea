// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which kernels do the arithmetic. Every set produces the same bytes.

#ifndef KVCOMPRESS_KERNELS_H_
#define KVCOMPRESS_KERNELS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Asks the system to let this process use tiles (Intel AMX), with which caches
// are coded with a profile in a third to half of the time; false where the
// processor has none, or the system does not allow it. Before anything else of
// this library is called: later it changes nothing.
//
// It changes the whole process: from then on Linux refuses alternative signal
// stacks (sigaltstack) below what tiles need, about 12 KiB where SIGSTKSZ is 8,
// and gives no permission where a thread has such a stack already. A program
// that is asked to load this library by others should therefore leave it.
// Thread safe.
bool AllowTiles();

// Name of the set in use: "amx", "avx512", "avx2", "sse4", "neon", "portable"
// or "portable-tiles", which is there to be compared with. The fastest that
// this machine can run, unless another was selected. Thread safe.
absl::string_view ActiveKernels();

// Uses the set of that name from now on, in codecs that are created later.
// INVALID_ARGUMENT, naming the sets there are, when this machine has no such
// set. Thread safe.
absl::Status SelectKernels(absl::string_view name);

}  // namespace kvcompress

#endif  // KVCOMPRESS_KERNELS_H_
