// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "run/payload_writes.h"

#include <utility>

#include "status/macros.h"

namespace kvcompress {

class PayloadWrites::Write final : public Job {
 public:
  Write(PlacedSink* sink, uint64_t offset, std::string bytes)
      : sink_(*sink), offset_(offset), bytes_(std::move(bytes)) {}

  // Of one that is done.
  const absl::Status& status() const { return status_; }
  std::string TakeMemory() {
    bytes_.clear();
    return std::move(bytes_);
  }

 private:
  void Run() override { status_ = sink_.Write(offset_, bytes_); }

  PlacedSink& sink_;
  const uint64_t offset_;
  std::string bytes_;
  absl::Status status_;
};

absl::Status PayloadWrites::Add(std::string* bytes, bool now) {
  const uint64_t offset = offset_;
  offset_ += bytes->size();
  if (now) {
    absl::Status status = sink_->Write(offset, *bytes);
    bytes->clear();
    return status;
  }
  std::string memory;
  if (!spares_.empty()) {
    memory = std::move(spares_.back());
    spares_.pop_back();
  }
  bytes->swap(memory);
  writes_.push_back(std::make_shared<Write>(sink_, offset, std::move(memory)));
  queue_.Add(writes_.back());
  return absl::OkStatus();
}

absl::Status PayloadWrites::Settle(size_t most, Checkpoint* checkpoint) {
  while (!writes_.empty() &&
         (writes_.size() > most || queue_.IsDone(*writes_.front()))) {
    const std::shared_ptr<Write> write = writes_.front();
    KVC_RETURN_IF_ERROR(WaitFor(write, &queue_, checkpoint));
    spares_.push_back(write->TakeMemory());
    writes_.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace kvcompress
