// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Sets of kernels in SIMD instructions, with Highway.

#ifndef KVCOMPRESS_KERNELS_HIGHWAY_SETS_H_
#define KVCOMPRESS_KERNELS_HIGHWAY_SETS_H_

#include <vector>

#include "kernels/kernels.h"

namespace kvcompress::kernels {

// Those that were compiled and that this processor can run, the widest first.
// What they cannot do fast, such as a group that is not whole or finding which
// element is at fault, they delegate to Portable().
std::vector<const KernelSet*> HighwaySets();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_HIGHWAY_SETS_H_
