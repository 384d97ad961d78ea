// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Detects whether two readings of a file gave the same bytes (XXH3-128). Finds
// accidents, not adversaries.

#ifndef KVCOMPRESS_SERVER_CHECKSUM_H_
#define KVCOMPRESS_SERVER_CHECKSUM_H_

#include <memory>

#include "absl/strings/string_view.h"

struct XXH3_state_s;

namespace kvcompress {

// Not thread safe.
class Checksum {
 public:
  // Throws std::bad_alloc.
  Checksum();
  void Take(absl::string_view bytes);
  // Whether both took the same bytes.
  friend bool operator==(const Checksum& a, const Checksum& b);

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CHECKSUM_H_
