// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The digest of the artefact format: XXH3-128 with seed 0 (xxhash.com), in its
// canonical form as 32 lower-case hexadecimal digits. Finds accidents, not
// adversaries. Internal to the library.

#ifndef KVCOMPRESS_DIGEST_DIGEST_H_
#define KVCOMPRESS_DIGEST_DIGEST_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

struct XXH3_state_s;

namespace kvcompress {

inline constexpr size_t kDigestDigits = 32;

// A digest over bytes that arrive in pieces. Not thread safe.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) = default;
  Digest& operator=(Digest&&) = default;

  void Update(absl::string_view bytes);
  // The digest of everything so far.
  std::string Hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_DIGEST_DIGEST_H_
