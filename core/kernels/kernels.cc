// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/kernels.h"

#include "kvcompress/kernels.h"

namespace kvcompress {
namespace kernels {

const KernelSet& Active() { return Portable(); }

}  // namespace kernels

absl::string_view ActiveKernels() { return kernels::Active().name; }

}  // namespace kvcompress
