// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Products of 16-bit integers by the instructions that multiply and add at once
// (AVX-512 VNNI), which Highway has no name for here. For the AVX-512 set.

#ifndef KVCOMPRESS_KERNELS_VNNI_H_
#define KVCOMPRESS_KERNELS_VNNI_H_

#include "kernels/joint.h"
#include "kernels/kernels.h"

namespace kvcompress::kernels {

// Both null where the processor does not have them.
MultiplyInt16 Vnni();
RestoreStrip VnniStrip();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_VNNI_H_
