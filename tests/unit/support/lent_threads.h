// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads for those that test what several of them make.

#ifndef KVCOMPRESS_TESTS_UNIT_SUPPORT_LENT_THREADS_H_
#define KVCOMPRESS_TESTS_UNIT_SUPPORT_LENT_THREADS_H_

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/threads.h"
#include "support/lent.h"
#include "support/placed.h"
#include "support/safetensors_file.h"

namespace kvcompress::testing {

// Which threads look at a checkpoint. While help is on its way, whoever looks
// waits for another to do so too.
class Witness {
 public:
  Threads Give(Lent* lent, unsigned count) {
    Threads threads = lent->Give(count);
    threads.run = [this, run = threads.run](std::function<void()> task) {
      Count(1);
      run([this, task = std::move(task)] {
        task();
        Count(-1);
      });
    };
    return threads;
  }

  absl::Status Look() {
    std::unique_lock<std::mutex> lock(mutex_);
    seen_.insert(std::this_thread::get_id());
    looked_.notify_all();
    looked_.wait(lock, [this] { return seen_.size() > 1 || helpers_ == 0; });
    return absl::OkStatus();
  }

  size_t seen() const { return seen_.size(); }

 private:
  void Count(int more) {
    const std::lock_guard<std::mutex> lock(mutex_);
    helpers_ += more;
    looked_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable looked_;
  int helpers_ = 0;
  std::set<std::thread::id> seen_;
};

inline absl::StatusOr<Compressed> CompressInChunksWith(
    absl::string_view file, const CompressOptions& options,
    const Threads& threads, size_t chunk) {
  CompressLimits limits;
  limits.threads = threads;
  Compressor compressor(options, limits);
  CompressOutput output;
  Compressed out;
  for (size_t i = 0; i < file.size(); i += chunk) {
    absl::Status status = compressor.Append(file.substr(i, chunk), &output);
    if (!status.ok()) return status;
  }
  absl::StatusOr<CompressReport> report = compressor.Finish();
  if (!report.ok()) return report.status();
  out.report = *std::move(report);
  out.artefact = compressor.header() + output.artefact;
  out.reconstructed = std::move(output.reconstructed);
  return out;
}

// The same, which has to agree with what it becomes in place.
inline absl::StatusOr<Compressed> CompressWith(absl::string_view file,
                                               const CompressOptions& options,
                                               const Threads& threads,
                                               size_t chunk) {
  return IfPlacedAgrees(file, options, threads,
                        CompressInChunksWith(file, options, threads, chunk));
}

// A compressor that has the beginning of a file, and 16 threads that never
// come, with so much memory.
inline std::unique_ptr<Compressor> BegunWith(const std::string& file,
                                             CompressOptions options,
                                             uint64_t memory) {
  auto compressor = std::make_unique<Compressor>(
      std::move(options), CompressLimits{.threads = {.count = 16,
                                                     .run = [](const auto&) {},
                                                     .memory = memory}});
  CompressOutput output;
  EXPECT_TRUE(
      compressor->Append(absl::string_view(file).substr(0, 8192), &output)
          .ok());
  return compressor;
}

inline absl::StatusOr<std::string> RestoreInSteps(
    absl::string_view artefact, const DecompressOptions& options,
    const Threads& threads, size_t chunk, size_t most) {
  DecompressLimits limits;
  limits.threads = threads;
  Decompressor decompressor(options, limits);
  std::string restored;
  for (size_t i = 0; i < artefact.size(); i += chunk) {
    absl::string_view bytes = artefact.substr(i, chunk);
    for (bool more = true; more;) {
      std::string part;
      absl::StatusOr<bool> step = decompressor.Restore(&bytes, most, &part);
      if (!step.ok()) return step.status();
      EXPECT_LE(part.size(), most);
      more = *step;
      restored += part;
    }
  }
  absl::Status status = decompressor.Finish().status();
  if (!status.ok()) return status;
  return restored;
}

// The same, which has to agree with what is restored in place.
inline absl::StatusOr<std::string> RestoreWith(absl::string_view artefact,
                                               const DecompressOptions& options,
                                               const Threads& threads,
                                               size_t chunk, size_t most) {
  return IfPlacedAgrees(
      artefact, options, threads,
      RestoreInSteps(artefact, options, threads, chunk, most));
}

}  // namespace kvcompress::testing

#endif  // KVCOMPRESS_TESTS_UNIT_SUPPORT_LENT_THREADS_H_
