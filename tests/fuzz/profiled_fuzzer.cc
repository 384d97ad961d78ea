// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Artefacts whose tensors were coded together with a profile.

#include "artefacts.h"
#include "small_profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcompress::fuzz::FuzzArtefact({data, size},
                                 {kvcompress::fuzz::SmallProfile()});
  return 0;
}
