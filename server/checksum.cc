// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "checksum.h"

#include <xxhash.h>

#include <new>

namespace kvcompress {

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Checksum::Take(absl::string_view bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

bool operator==(const Checksum& a, const Checksum& b) {
  return XXH128_isEqual(XXH3_128bits_digest(a.state_.get()),
                        XXH3_128bits_digest(b.state_.get())) != 0;
}

void Checksum::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

}  // namespace kvcompress
