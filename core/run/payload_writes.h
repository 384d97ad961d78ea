// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Payloads on their way to where they belong in an artefact, written by those
// threads of a call that have time. Internal to the library.

#ifndef KVCOMPRESS_RUN_PAYLOAD_WRITES_H_
#define KVCOMPRESS_RUN_PAYLOAD_WRITES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/places.h"
#include "pipeline/job_queue.h"

namespace kvcompress {

// Not thread safe.
class PayloadWrites {
 public:
  // `queue` outlives this, and ends before `sink` does.
  explicit PayloadWrites(JobQueue* queue) : queue_(*queue) {}

  // Where payloads go. Without a sink there is nothing to be written.
  void Use(PlacedSink* sink) { sink_ = sink; }
  bool used() const { return sink_ != nullptr; }
  PlacedSink* sink() const { return sink_; }
  // Where the first begins, in bytes; and where those end that came so far.
  void BeginAt(uint64_t offset) { offset_ = offset; }
  uint64_t end() const { return offset_; }

  // Writes `*bytes` behind those before, and leaves it empty; by this thread
  // where it is to be written now. The error of the sink then.
  absl::Status Add(std::string* bytes, bool now);

  // So many bytes behind those before are written by others.
  void Skip(uint64_t size) { offset_ += size; }

  // Waits until at most `most` are left. The first error of the sink, or that
  // of the checkpoint, which may be null.
  absl::Status Settle(size_t most, Checkpoint* checkpoint);

 private:
  class Write;

  JobQueue& queue_;
  PlacedSink* sink_ = nullptr;
  uint64_t offset_ = 0;
  std::deque<std::shared_ptr<Write>> writes_;
  std::vector<std::string> spares_;  // memory of what was written
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_RUN_PAYLOAD_WRITES_H_
