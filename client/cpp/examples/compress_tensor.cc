// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Compresses one tensor in memory and restores it, with the library alone: no
// server, no gRPC, no files.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"

namespace {

// Keys of one layer: [batch, heads, tokens, head_dim] in F32.
constexpr uint64_t kHeads = 2, kTokens = 128, kHeadDim = 64;

absl::Status Compress(absl::string_view values, std::string* artefact) {
  kvcompress::TensorSpec spec;
  spec.name = "layer_0_key";
  spec.dtype = kvcompress::DType::kF32;
  spec.shape = {1, kHeads, kTokens, kHeadDim};
  spec.role = kvcompress::TensorRole::kKey;

  kvcompress::Compressor compressor({}, {});
  kvcompress::CompressOutput output;
  absl::Status status = compressor.DeclareTensors({spec}, {}, &output);
  if (!status.ok()) return status;
  status = compressor.AppendTensor(spec.name, values, &output);
  if (!status.ok()) return status;
  const auto report = compressor.Finish();
  if (!report.ok()) return report.status();
  std::printf("%.2fx smaller, RMSE %.4f\n", report->compression_ratio,
              report->metrics.rmse);

  // The header holds the checksums, so it is complete only now.
  *artefact = compressor.header() + output.artefact;
  return absl::OkStatus();
}

absl::Status Restore(absl::string_view artefact, std::string* safetensors) {
  kvcompress::Decompressor decompressor({}, {});
  std::string restored;
  bool more = true;
  while (more) {
    const auto step = decompressor.Restore(&artefact, 1 << 20, &restored);
    if (!step.ok()) return step.status();
    more = *step;
    *safetensors += restored;
    restored.clear();
  }
  // Nothing that was restored counts before this says that it is intact.
  return decompressor.Finish().status();
}

}  // namespace

int main() {
  std::vector<float> keys(kHeads * kTokens * kHeadDim);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = std::sin(0.01F * static_cast<float>(i));
  }
  const absl::string_view bytes(reinterpret_cast<const char*>(keys.data()),
                                keys.size() * sizeof(float));
  std::string artefact;
  std::string safetensors;
  absl::Status status = Compress(bytes, &artefact);
  if (status.ok()) status = Restore(artefact, &safetensors);
  if (!status.ok()) {
    std::fprintf(stderr, "compress_tensor: %s\n", status.ToString().c_str());
    return 1;
  }
  std::printf("artefact %zu bytes, restored file %zu bytes\n", artefact.size(),
              safetensors.size());
  return 0;
}
