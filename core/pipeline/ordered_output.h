// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Output that waits for its turn. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_ORDERED_OUTPUT_H_
#define KVCOMPRESS_PIPELINE_ORDERED_OUTPUT_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>

namespace kvcompress {

// Output of tensors that become ready in another order than they are due in.
// Not thread safe.
class OrderedOutput {
 public:
  // Where the bytes of a tensor go: `*out` where it is due, else kept.
  std::string* For(size_t tensor, std::string* out);
  // No more bytes of the tensor come. Moves to `*out` those that are now due.
  void End(size_t tensor, std::string* out);

 private:
  size_t due_ = 0;
  std::map<size_t, std::string> kept_;
  std::set<size_t> ended_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_ORDERED_OUTPUT_H_
