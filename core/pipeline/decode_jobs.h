// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The tensors that the threads of a call decode at a time, and what they become
// in the order in which it is given back. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_DECODE_JOBS_H_
#define KVCOMPRESS_PIPELINE_DECODE_JOBS_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/threads.h"
#include "pipeline/job_queue.h"
#include "pipeline/spare_strings.h"
#include "pipeline/tensor_decoding.h"

namespace kvcompress {

// Used by one thread, that of the call.
class DecodeJobs {
 public:
  explicit DecodeJobs(Threads threads);

  // How threads work: as one does, until this says something else. Before
  // anything is added.
  void Follow(const ThreadPlan& plan);
  void UseOneThread();

  unsigned workers() const { return workers_; }
  size_t places() const { return queue_.places(); }
  // The most threads that work.
  unsigned threads() const;

  // What jobs are made with, and added to where they return nothing.
  JobQueue& queue() { return queue_; }
  SpareStrings& spares() { return spares_; }

  // Adds the tensor that is given back after those that were added before.
  void Add(std::shared_ptr<DecodeJob> job);

  bool empty() const { return tensors_.empty(); }
  // Whether no more tensors may be at work, or wait to be given back.
  bool is_full() const { return tensors_.size() >= 2 * size_t{workers_}; }
  // Puts pieces to work. Whether Take need not wait. REQUIRES: not empty.
  bool IsReady();

  struct Part {
    std::string bytes;
    bool is_last = true;  // of its tensor
  };
  // Works until a tensor that comes whole, or a piece of one, is decoded, and
  // returns it: what comes next. Its error, or that of the checkpoint, which
  // may be null. REQUIRES: not empty.
  absl::StatusOr<Part> Take(Checkpoint* checkpoint);

 private:
  // Adds pieces of the tensors that come in pieces, in their order, as far as
  // these may be at work or wait to be given back.
  void AddPieces();

  const unsigned count_;  // of threads
  unsigned workers_ = 1;
  SpareStrings spares_;
  std::deque<std::shared_ptr<DecodeJob>> tensors_;
  std::deque<std::shared_ptr<PieceJob>> pieces_;  // of these, in their order
  size_t cut_ = 0;         // of tensors_, the first that has more pieces to add
  size_t next_piece_ = 0;  // of that
  JobQueue queue_;         // ends before what its jobs work with
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_DECODE_JOBS_H_
