// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Memory of jobs that is used again: for a system to give pages takes longer
// than int4 takes to fill them. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_SPARE_STRINGS_H_
#define KVCOMPRESS_PIPELINE_SPARE_STRINGS_H_

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace kvcompress {

// The memory of strings while nobody has them: of as many as were in use at a
// time, since one is only made when none is spare. Thread safe.
class SpareString {
 public:
  // An empty string, perhaps with memory.
  std::string Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.empty()) return {};
    std::string taken = std::move(spare_.back());
    spare_.pop_back();
    return taken;
  }

  // Takes the memory of a string, and leaves it empty.
  void PutBack(std::string* used) {
    std::string taken = std::exchange(*used, std::string());
    taken.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    spare_.push_back(std::move(taken));
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> spare_;
};

// Of what jobs take and of what they make, apart: these differ in size.
struct SpareStrings {
  SpareString taken;
  SpareString made;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_SPARE_STRINGS_H_
