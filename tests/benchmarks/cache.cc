// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Whole caches with and without a profile behind a C interface, for
// tests/benchmark --profiles: what Compressor and Decompressor take on one
// thread, with all that a report has. Functions that fail give null or a
// negative number.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/profile.h"

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

}  // extern "C"
