// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/decode_jobs.h"

#include <utility>

#include "status/macros.h"

namespace kvcompress {

DecodeJobs::DecodeJobs(Threads threads)
    : count_(threads.count), queue_(std::move(threads)) {
  queue_.set_places(1);
}

void DecodeJobs::Follow(const ThreadPlan& plan) {
  workers_ = plan.workers;
  queue_.set_places(plan.places);
}

void DecodeJobs::UseOneThread() {
  workers_ = 1;
  queue_.UseOneThread();
}

unsigned DecodeJobs::threads() const {
  return ThreadsOf(workers_, places(), count_);
}

void DecodeJobs::Add(std::shared_ptr<DecodeJob> job) {
  queue_.Add(job);
  tensors_.push_back(std::move(job));
}

void DecodeJobs::AddPieces() {
  while (cut_ < tensors_.size() && pieces_.size() < 2 * size_t{threads()}) {
    const std::shared_ptr<DecodeJob>& tensor = tensors_[cut_];
    if (!queue_.IsDone(*tensor)) return;
    if (next_piece_ == tensor->pieces()) {
      ++cut_;
      next_piece_ = 0;
      continue;
    }
    pieces_.push_back(std::make_shared<PieceJob>(tensor, next_piece_++));
    queue_.Add(pieces_.back());
  }
}

bool DecodeJobs::IsReady() {
  AddPieces();
  // Where there are pieces, the first of the tensors is done.
  if (pieces_.empty()) return queue_.IsDone(*tensors_.front());
  return tensors_.front()->pieces() == 0 || queue_.IsDone(*pieces_.front());
}

absl::StatusOr<DecodeJobs::Part> DecodeJobs::Take(Checkpoint* checkpoint) {
  const std::shared_ptr<DecodeJob> tensor = tensors_.front();
  KVC_RETURN_IF_ERROR(WaitFor(tensor, &queue_, checkpoint));
  AddPieces();
  Part part;
  if (tensor->pieces() == 0) {
    part.bytes = std::move(tensor->decoded());
  } else {
    const std::shared_ptr<PieceJob> piece = pieces_.front();
    KVC_RETURN_IF_ERROR(WaitFor(piece, &queue_, checkpoint));
    part = {std::move(piece->decoded()), piece->is_last()};
    pieces_.pop_front();
    if (part.is_last) tensor->Release();
  }
  if (part.is_last) {
    tensors_.pop_front();
    if (cut_ > 0) --cut_;
  }
  AddPieces();
  return part;
}

}  // namespace kvcompress
