// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Caches in memory of the caller: compressed from where they lie, and restored
// to where they belong, by several threads, without a file, a server or a copy.
//
//   ThreadPool pool(15);
//   ASSIGN_OR_RETURN(CompressedCache cache,
//                    CompressTensors(tensors, options, pool.Lend(16)));
//   ASSIGN_OR_RETURN(
//       DecompressReport report,
//       RestoreTensors(cache.artefact, {}, pool.Lend(16),
//                      [&](const TensorSpec& spec) { return MemoryFor(spec);
//                      }));

#ifndef KVCOMPRESS_MEMORY_H_
#define KVCOMPRESS_MEMORY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/tensor.h"
#include "kvcompress/threads.h"

namespace kvcompress {

// A tensor: its elements in the order of its shape, in the host's byte order.
struct TensorBytes {
  TensorSpec spec;
  absl::string_view bytes;
};

struct CompressedCache {
  std::string artefact;
  CompressReport report;
};

// Compresses tensors, whose bytes do not change meanwhile. The artefact is the
// one that Compressor makes of the same tensors in the same order.
// INVALID_ARGUMENT for a tensor whose bytes are not as many as its shape says,
// and with `reconstruct`; else the errors of Compressor.
absl::StatusOr<CompressedCache> CompressTensors(
    absl::Span<const TensorBytes> tensors, CompressOptions options,
    const Threads& threads,
    std::vector<std::pair<std::string, std::string>> metadata = {});

// Where a tensor is to be restored to: exactly as many bytes as it has. Called
// once for each tensor that is given back, in their order, before any of them
// is restored; `spec` has the shape of what is given back.
using MemoryForTensor =
    absl::FunctionRef<absl::StatusOr<absl::Span<char>>(const TensorSpec& spec)>;

// Restores an artefact. What is in the memory counts only when this succeeds.
// INVALID_ARGUMENT for memory of another size than the tensor's; else the
// errors of Decompressor, and those of `memory`.
absl::StatusOr<DecompressReport> RestoreTensors(absl::string_view artefact,
                                                DecompressOptions options,
                                                const Threads& threads,
                                                MemoryForTensor memory);

}  // namespace kvcompress

#endif  // KVCOMPRESS_MEMORY_H_
