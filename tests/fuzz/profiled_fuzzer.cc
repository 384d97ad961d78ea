// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Artefacts whose tensors were coded together with a profile.

#include <string>

#include "artefacts.h"
#include "kvcompress/kernels.h"
#include "small_profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Every other input by tiles, in kernels that the sanitizer looks into.
  static const auto* const fastest =
      new std::string(kvcompress::ActiveKernels());
  if (!kvcompress::SelectKernels(size % 2 == 0 ? *fastest : "portable-tiles")
           .ok()) {
    __builtin_trap();
  }
  kvcompress::fuzz::FuzzArtefact({data, size},
                                 {kvcompress::fuzz::SmallProfile()});
  return 0;
}
