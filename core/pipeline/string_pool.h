// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Memory of jobs that is used again: for a system to give pages takes longer
// than int4 takes to fill them. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_STRING_POOL_H_
#define KVCOMPRESS_PIPELINE_STRING_POOL_H_

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace kvcompress {

// Holds no more strings than jobs have had at a time. Thread safe.
class StringPool {
 public:
  // An empty one, perhaps with memory.
  std::string Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::string();
    std::string taken = std::move(free_.back());
    free_.pop_back();
    return taken;
  }

  // Takes the memory of a string, and leaves it empty.
  void PutBack(std::string* used) {
    std::string taken = std::exchange(*used, std::string());
    if (taken.capacity() == std::string().capacity()) return;
    taken.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(taken));
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> free_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_STRING_POOL_H_
