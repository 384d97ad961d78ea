// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How long work is ended before its end: it looks every few milliseconds
// whether its result is still wanted.

#ifndef KVCOMPRESS_CHECKPOINT_H_
#define KVCOMPRESS_CHECKPOINT_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "absl/status/status.h"

namespace kvcompress {

// Whether a result is still wanted: OK, or the error that the work is to end
// with, which is not INVALID_ARGUMENT. Called from the thread that works, some
// hundred times a second or more.
using StillWanted = std::function<absl::Status()>;

// One that work looks at. Not thread safe.
class Checkpoint {
 public:
  // `wanted` is not null.
  explicit Checkpoint(StillWanted wanted) : wanted_(std::move(wanted)) {}

  // Whether the work is to end; once it is, for ever. What it has made by then
  // is not complete and may be of any kind: it is thrown away.
  bool Stops() {
    if (status_.ok()) status_ = wanted_();
    return !status_.ok();
  }

  // Another one that asks the same, for another thread. REQUIRES: what was
  // given is thread safe.
  Checkpoint Another() const { return Checkpoint(wanted_); }

  // OK, or why it stops.
  const absl::Status& status() const { return status_; }

 private:
  const StillWanted wanted_;
  absl::Status status_;
};

// The same of one that may be null, and then never stops.
inline bool Stops(Checkpoint* checkpoint) {
  return checkpoint != nullptr && checkpoint->Stops();
}
// The same of a loop over tensors, or something else that takes microseconds
// each: looks at every 256th step.
inline bool StopsAt(size_t step, Checkpoint* checkpoint) {
  constexpr size_t kSteps = 256;
  return step % kSteps == kSteps - 1 && Stops(checkpoint);
}
inline absl::Status StatusOf(const Checkpoint* checkpoint) {
  return checkpoint == nullptr ? absl::OkStatus() : checkpoint->status();
}

}  // namespace kvcompress

#endif  // KVCOMPRESS_CHECKPOINT_H_
