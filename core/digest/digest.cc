// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "digest/digest.h"

#include <xxhash.h>

#include <new>

#include "absl/strings/escaping.h"

namespace kvcompress {

void Digest::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Digest::Digest() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

Digest::~Digest() = default;

void Digest::Update(absl::string_view bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Digest::Hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(canonical.digest),
                        sizeof(canonical.digest)));
}

}  // namespace kvcompress
