// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/kernels.h"

namespace kvcompress::kernels {

const KernelSet& Active() { return Portable(); }

}  // namespace kvcompress::kernels
