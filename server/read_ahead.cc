// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "read_ahead.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress {

absl::Status ReadError(int error) {
  return MakeError(absl::StatusCode::kInternal,
                   absl::StrCat("the input cannot be read: ",
                                std::generic_category().message(error)),
                   {.reason = "FILE_ERROR", .field = "input_path"});
}

ReadAhead::ReadAhead(int fd, uint64_t size, uint64_t begin)
    : fd_(fd), size_(size), position_(begin), taken_(begin) {
  // Here, where running out of memory is an error of the call.
  for (Slice& slice : slices_)
    slice.bytes.resize(std::min<uint64_t>(kSlice, size - begin));
  if (size - begin <= kSlice) return;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {
    // There are too many: it goes without one.
  }
}

ReadAhead::~ReadAhead() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

absl::StatusOr<absl::string_view> ReadAhead::Next() {
  Slice& slice = slices_[next_];
  if (thread_.joinable()) {
    std::unique_lock lock(mutex_);
    if (lent_) {
      slices_[1 - next_].full = false;
      changed_.notify_all();
    }
    if (taken_ == size_) return absl::string_view();
    changed_.wait(lock, [&] { return slice.full; });
  } else {
    Fill(&slice);
  }
  if (slice.error != 0) return ReadError(slice.error);
  lent_ = true;
  next_ = 1 - next_;
  taken_ += slice.size;
  return absl::string_view(slice.bytes.data(), slice.size);
}

// Reads the next slice, less at the end of the file.
void ReadAhead::Fill(Slice* slice) {
  const size_t wanted = std::min<uint64_t>(kSlice, size_ - position_);
  slice->size = 0;
  while (slice->size < wanted) {
    const ssize_t count =
        pread(fd_, slice->bytes.data() + slice->size, wanted - slice->size,
              static_cast<off_t>(position_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) slice->error = errno;
    if (count <= 0) return;
    slice->size += static_cast<size_t>(count);
    position_ += static_cast<uint64_t>(count);
  }
}

void ReadAhead::Run() {
  for (size_t i = 0; position_ < size_; i = 1 - i) {
    Slice& slice = slices_[i];
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !slice.full; });
      if (stopping_) return;
    }
    const uint64_t before = position_;
    Fill(&slice);
    {
      const std::lock_guard lock(mutex_);
      slice.full = true;
    }
    changed_.notify_all();
    // The file has become shorter, or cannot be read: that slice says so.
    if (position_ == before) return;
  }
}

}  // namespace kvcompress
