// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Compresses the keys and values of a layer where they lie in memory, and
// restores them to other memory, with the library alone: no server, no gRPC, no
// files.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/memory.h"
#include "kvcompress/thread_pool.h"

namespace {

// [batch, heads, tokens, head_dim] in F32.
constexpr uint64_t kHeads = 2, kTokens = 128, kHeadDim = 64;
constexpr unsigned kThreads = 2;

using Values = std::vector<float>;

kvcompress::TensorBytes Tensor(const char* name, kvcompress::TensorRole role,
                               const Values& values) {
  kvcompress::TensorBytes tensor;
  tensor.spec.name = name;
  tensor.spec.dtype = kvcompress::DType::kF32;
  tensor.spec.shape = {1, kHeads, kTokens, kHeadDim};
  tensor.spec.role = role;
  tensor.bytes = absl::string_view(reinterpret_cast<const char*>(values.data()),
                                   values.size() * sizeof(values.front()));
  return tensor;
}

absl::Status Run(const Values& keys, const Values& values) {
  // The thread that calls works too.
  kvcompress::ThreadPool pool(kThreads - 1);
  const auto compressed = kvcompress::CompressTensors(
      {Tensor("layer_0_key", kvcompress::TensorRole::kKey, keys),
       Tensor("layer_0_value", kvcompress::TensorRole::kValue, values)},
      {}, pool.Lend(kThreads));
  if (!compressed.ok()) return compressed.status();
  std::printf("%.2fx smaller, RMSE %.4f\n",
              compressed->report.compression_ratio,
              compressed->report.metrics.rmse);

  std::vector<Values> restored;
  restored.reserve(2);  // memory that is lent does not move
  const auto report = kvcompress::RestoreTensors(
      compressed->artefact, {}, pool.Lend(kThreads),
      [&](const kvcompress::TensorSpec&) {
        Values& its = restored.emplace_back(kHeads * kTokens * kHeadDim);
        return absl::MakeSpan(reinterpret_cast<char*>(its.data()),
                              its.size() * sizeof(its.front()));
      });
  // What was restored counts only now: all of it is intact.
  if (!report.ok()) return report.status();
  std::printf("artefact %zu bytes, first key %.3f, restored as %.3f\n",
              compressed->artefact.size(), keys[1], restored[0][1]);
  return absl::OkStatus();
}

}  // namespace

int main() {
  Values keys(kHeads * kTokens * kHeadDim);
  Values values(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = std::sin(0.01F * static_cast<float>(i));
    values[i] = std::cos(0.02F * static_cast<float>(i));
  }
  const absl::Status status = Run(keys, values);
  if (status.ok()) return 0;
  std::fprintf(stderr, "compress_tensor: %s\n", status.ToString().c_str());
  return 1;
}
