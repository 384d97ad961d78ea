// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Products of 16-bit integers by the instructions that multiply tiles of bytes
// (AMX), which Highway has no name for here. For the AVX-512 set.

#ifndef KVCOMPRESS_KERNELS_AMX_H_
#define KVCOMPRESS_KERNELS_AMX_H_

#include "kernels/kernels.h"

namespace kvcompress::kernels {

// Null where the processor does not have them, or the system does not let this
// process use them, for which it is asked here. Shapes without whole tiles are
// left to Vnni(), which is there where this is.
const ProductKernels* Amx();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_AMX_H_
