// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Numbers of a few bits, packed from the lowest bit of the first byte on.

#ifndef KVCOMPRESS_ENTROPY_BITS_H_
#define KVCOMPRESS_ENTROPY_BITS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace kvcompress::coding {

class BitWriter {
 public:
  explicit BitWriter(std::string* out) : out_(out) {}

  // Appends the lowest `count` bits, 0 to 15, of `value`.
  void Put(uint32_t value, int count) {
    pending_ |= (value & ((1u << count) - 1)) << pending_count_;
    pending_count_ += count;
    for (; pending_count_ >= 8; pending_count_ -= 8, pending_ >>= 8) {
      out_->push_back(static_cast<char>(pending_));
    }
  }

  // Fills the last byte with zeros.
  void Finish() { Put(0, (8 - pending_count_) % 8); }

 private:
  std::string* const out_;
  uint32_t pending_ = 0;
  int pending_count_ = 0;
};

class BitReader {
 public:
  explicit BitReader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  // The next `count` bits, 0 to 15; zeros past the end.
  uint32_t Get(int count) {
    while (pending_count_ < count) {
      const uint32_t byte = position_ < bytes_.size() ? bytes_[position_] : 0;
      ++position_;
      pending_ |= byte << pending_count_;
      pending_count_ += 8;
    }
    const uint32_t value = pending_ & ((1u << count) - 1);
    pending_ >>= count;
    pending_count_ -= count;
    return value;
  }

  // Whether exactly all bytes were read, and the bits left over are zero.
  bool AtEnd() const { return position_ == bytes_.size() && pending_ == 0; }

 private:
  const absl::Span<const uint8_t> bytes_;
  size_t position_ = 0;
  uint32_t pending_ = 0;
  int pending_count_ = 0;
};

}  // namespace kvcompress::coding

#endif  // KVCOMPRESS_ENTROPY_BITS_H_
