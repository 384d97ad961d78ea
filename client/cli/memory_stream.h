// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Bytes in memory as a sink and as a source, and a source that is watched.

#ifndef KVCOMPRESS_CLIENT_CLI_MEMORY_STREAM_H_
#define KVCOMPRESS_CLIENT_CLI_MEMORY_STREAM_H_

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/progress.h"
#include "kvcompress/byte_stream.h"

namespace kvcompress::cli {

class MemorySink : public ByteSink {
 public:
  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override {
    if (bytes_.size() < offset + bytes.size()) {
      bytes_.resize(offset + bytes.size());
    }
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  const std::string& bytes() const { return bytes_; }
  std::string TakeBytes() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// `bytes` outlive it.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(absl::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<size_t> Read(absl::Span<char> buffer) override {
    if (cancelled_) return absl::CancelledError("cancelled");
    const size_t size = std::min(buffer.size(), bytes_.size());
    std::memcpy(buffer.data(), bytes_.data(), size);
    bytes_.remove_prefix(size);
    return size;
  }
  void Cancel() override { cancelled_ = true; }

 private:
  absl::string_view bytes_;
  std::atomic<bool> cancelled_{false};
};

// Shows what is read of `source`. Both outlive it.
class WatchedSource : public ByteSource {
 public:
  WatchedSource(ByteSource* source, Progress* progress)
      : source_(source), progress_(progress) {}

  absl::StatusOr<size_t> Read(absl::Span<char> buffer) override {
    absl::StatusOr<size_t> size = source_->Read(buffer);
    if (size.ok()) progress_->Advance(*size);
    return size;
  }
  void Cancel() override { source_->Cancel(); }

 private:
  ByteSource* const source_;
  Progress* const progress_;
};

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_MEMORY_STREAM_H_
