// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/ordered_output.h"

namespace kvcompress {

std::string* OrderedOutput::For(size_t tensor, std::string* out) {
  return tensor == due_ ? out : &kept_[tensor];
}

void OrderedOutput::End(size_t tensor, std::string* out) {
  ended_.insert(tensor);
  while (ended_.erase(due_) != 0) {
    ++due_;
    const auto kept = kept_.find(due_);
    if (kept == kept_.end()) continue;
    out->append(kept->second);
    kept_.erase(kept);
  }
}

}  // namespace kvcompress
