// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which kernels do the arithmetic. Every set gives the same bytes.

#ifndef KVCOMPRESS_KERNELS_H_
#define KVCOMPRESS_KERNELS_H_

#include "absl/strings/string_view.h"

namespace kvcompress {

// Name of the set in use, such as "portable". Thread safe.
absl::string_view ActiveKernels();

}  // namespace kvcompress

#endif  // KVCOMPRESS_KERNELS_H_
