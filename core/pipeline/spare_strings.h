// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Memory of jobs that is used again: for a system to give pages takes longer
// than int4 takes to fill them. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_SPARE_STRINGS_H_
#define KVCOMPRESS_PIPELINE_SPARE_STRINGS_H_

#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace kvcompress {

// The memory of strings while nobody has them: of no more than were in use at a
// time. Thread safe.
class SpareString {
 public:
  // An empty string, perhaps with memory. Throws std::bad_alloc.
  std::string Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    // For all to be put back, so that this needs no memory: destructors do it.
    spare_.reserve(spare_.size() + taken_ + 1);
    ++taken_;
    if (spare_.empty()) return {};
    std::string taken = std::move(spare_.back());
    spare_.pop_back();
    return taken;
  }

  // Takes the memory of a string for one that was taken, or frees it, and
  // leaves it empty.
  void PutBack(std::string* used) noexcept {
    std::string memory = std::exchange(*used, std::string());
    memory.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (taken_ == 0) return;
    --taken_;
    spare_.push_back(std::move(memory));
  }

 private:
  std::mutex mutex_;
  size_t taken_ = 0;  // and not put back
  std::vector<std::string> spare_;
};

// Of what jobs take, of what they make, and of what that is restored to where
// an encoder returns it too, apart: these differ in size.
struct SpareStrings {
  SpareString taken;
  SpareString made;
  SpareString restored;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_SPARE_STRINGS_H_
