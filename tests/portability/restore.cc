// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Restores artefacts under every set of kernels that the machine has, and
// prints for each the digest of what came out:
//
//   restore FILE...
//   digest kernels file

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "digest/digest.h"
#include "kernels/kernels.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/kernels.h"

namespace kvcompress {
namespace {

int Run(int count, char** files) {
  for (const kernels::KernelSet* set : kernels::Available()) {
    if (!SelectKernels(set->name).ok()) return 1;
    for (int i = 0; i < count; ++i) {
      std::ifstream file(files[i], std::ios::binary);
      const std::string artefact((std::istreambuf_iterator<char>(file)), {});
      const absl::StatusOr<std::string> restored = RestoreWhole(artefact);
      if (!restored.ok()) {
        std::fprintf(stderr, "%s: %s\n", files[i],
                     restored.status().ToString().c_str());
        return 1;
      }
      Digest digest;
      digest.Update(*restored);
      std::printf("%s %s %s\n", digest.Hex().c_str(), set->name, files[i]);
    }
  }
  return 0;
}

}  // namespace
}  // namespace kvcompress

int main(int argc, char** argv) { return kvcompress::Run(argc - 1, argv + 1); }
