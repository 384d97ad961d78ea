// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "placed_files.h"

#include <unistd.h>
#include <xxhash.h>

#include <cerrno>

#include "absl/time/clock.h"
#include "read_ahead.h"

namespace kvcompress {
namespace {

std::array<uint64_t, 2> ChecksumOf(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace

absl::Status PlacedInput::Fill(uint64_t offset, size_t size,
                               char* bytes) const {
  for (size_t done = 0; done < size;) {
    const ssize_t count = pread(file_.fd(), bytes + done, size - done,
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ReadError(errno);
    if (count == 0) return InputChanged();
    done += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> PlacedInput::Read(uint64_t offset,
                                                    size_t size,
                                                    std::string* buffer) const {
  // What is there is overwritten, and need not be zeros before.
  if (buffer->size() < size) buffer->resize(size);
  absl::Status status = Fill(offset, size, buffer->data());
  if (!status.ok()) return status;
  const absl::string_view bytes = absl::string_view(*buffer).substr(0, size);
  if (twice_) {
    const Reading reading = {offset, size, ChecksumOf(bytes)};
    const std::lock_guard lock(mutex_);
    readings_.push_back(reading);
  }
  return bytes;
}

absl::StatusOr<bool> PlacedInput::ReadAgain(absl::Duration most) {
  const absl::Time until = absl::Now() + most;
  const std::lock_guard lock(mutex_);
  for (; read_again_ < readings_.size(); ++read_again_) {
    if (absl::Now() > until) return true;
    const Reading& reading = readings_[read_again_];
    if (buffer_.size() < reading.size) buffer_.resize(reading.size);
    absl::Status status = Fill(reading.offset, reading.size, buffer_.data());
    if (!status.ok()) return status;
    if (ChecksumOf({buffer_.data(), reading.size}) != reading.checksum) {
      return InputChanged();
    }
  }
  return false;
}

}  // namespace kvcompress
