// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Whole caches behind a C interface. For tests/benchmark --profiles, with and
// without a profile: what Compressor and Decompressor take on one thread, with
// all that a report has. For --threads: what restoring to memory takes.
// Functions that fail return null or a negative number.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/memory.h"
#include "kvcompress/profile.h"
#include "kvcompress/tensor.h"
#include "kvcompress/thread_pool.h"

namespace {

using Loaded = std::shared_ptr<const kvcompress::Profile>;

// What messages of a server have.
constexpr size_t kMessage = size_t{1} << 20;

std::string& Artefact() {
  static auto* const artefact = new std::string;
  return *artefact;
}

}  // namespace

extern "C" {

// A profile file, for good.
const void* kvb_profile(const char* bytes, uint64_t size) {
  auto profile = kvcompress::Profile::Parse({bytes, size});
  return profile.ok() ? new Loaded(*std::move(profile)) : nullptr;
}

// Compresses a safetensors file, with a profile or null. Keeps the artefact and
// returns its size.
int64_t kvb_cache_encode(const char* codec, const void* profile,
                         const char* source, uint64_t size) {
  kvcompress::CompressOptions options;
  options.codec = codec;
  if (profile != nullptr) {
    options.profile = *static_cast<const Loaded*>(profile);
  }
  kvcompress::Compressor compressor(std::move(options), {});
  kvcompress::CompressOutput output;
  absl::string_view left(source, size);
  for (; !left.empty(); left.remove_prefix(std::min(kMessage, left.size()))) {
    if (!compressor.Append(left.substr(0, kMessage), &output).ok()) return -1;
  }
  if (!compressor.Finish().ok()) return -1;
  Artefact() = compressor.header() + output.artefact;
  return static_cast<int64_t>(Artefact().size());
}

// Restores the artefact that is kept. The size of the file.
int64_t kvb_cache_decode(const void* profile) {
  kvcompress::DecompressOptions options;
  if (profile != nullptr) {
    options.profiles = {*static_cast<const Loaded*>(profile)};
  }
  kvcompress::Decompressor decompressor(std::move(options), {});
  absl::string_view left = Artefact();
  int64_t size = 0;
  std::string restored;
  for (bool more = true; more; restored.clear()) {
    const absl::StatusOr<bool> step =
        decompressor.Restore(&left, kMessage, &restored);
    if (!step.ok()) return -1;
    size += static_cast<int64_t>(restored.size());
    more = *step;
  }
  return decompressor.Finish().ok() ? size : -1;
}

// Restores an artefact to memory of `room` bytes by so many threads, one tensor
// behind the other. Their size together.
int64_t kvb_memory_restore(const char* artefact, uint64_t size, char* memory,
                           uint64_t room, unsigned threads) {
  kvcompress::ThreadPool pool(threads);
  absl::Span<char> left(memory, room);
  const auto next = [&left](const kvcompress::TensorSpec& spec)
      -> absl::StatusOr<absl::Span<char>> {
    const absl::StatusOr<uint64_t> elements = kvcompress::ElementCount(spec);
    if (!elements.ok()) return elements.status();
    const uint64_t bytes = *elements * kvcompress::DTypeSize(spec.dtype);
    if (bytes > left.size()) return absl::ResourceExhaustedError("no room");
    const absl::Span<char> taken = left.first(bytes);
    left.remove_prefix(bytes);
    return taken;
  };
  const bool restored =
      kvcompress::RestoreTensors({artefact, size}, {}, pool.Lend(threads), next)
          .ok();
  return restored ? static_cast<int64_t>(room - left.size()) : -1;
}

}  // extern "C"
