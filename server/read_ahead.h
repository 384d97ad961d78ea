// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A file in slices, the next one read by a second thread while one is worked
// on: copying out of the page cache takes about as long as int4 does.
//
// Bytes are copied and not mapped; see shared_directory.h. On the machine where
// this was measured copying was also the faster of the two (pages of a guest
// are dear to map): `tests/benchmark --transport` has the figures.

#ifndef KVCOMPRESS_SERVER_READ_AHEAD_H_
#define KVCOMPRESS_SERVER_READ_AHEAD_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// INTERNAL for an input that fails with this errno.
absl::Status ReadError(int error);

// Not thread safe.
class ReadAhead {
 public:
  // Bytes of a slice; two are held.
  static constexpr size_t kSlice = 512 << 10;

  // Reads the file `fd`, which outlives this, from `begin` to `size`.
  ReadAhead(int fd, uint64_t size, uint64_t begin = 0);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The next bytes, valid until the next call; none at the end, also when the
  // file has become shorter. INTERNAL when it cannot be read.
  absl::StatusOr<absl::string_view> Next();

 private:
  struct Slice {
    std::string bytes;
    size_t size = 0;
    int error = 0;
    bool full = false;  // guarded by the mutex
  };

  void Fill(Slice* slice);
  void Run();

  const int fd_;
  const uint64_t size_;
  uint64_t position_;  // of who reads
  uint64_t taken_;
  Slice slices_[2];
  size_t next_ = 0;
  bool lent_ = false;  // whether the slice before `next_` is in use
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by the mutex
  std::thread thread_;     // for files of more than one slice
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_READ_AHEAD_H_
