// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A bitstream of Zstandard (RFC 8878, section 4.1): read from its last bit to
// its first, and ended by a one and up to seven zeros.

#ifndef KVCOMPRESS_CODECS_LAST_STAGE_BACKWARD_BITS_H_
#define KVCOMPRESS_CODECS_LAST_STAGE_BACKWARD_BITS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/numeric/bits.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Reads within `bytes` only, whatever it is asked for.
class BackwardBits {
 public:
  // Bits that may be asked for at once.
  static constexpr int kMaxBits = 56;

  // A stream without an end mark has no bits: `left` is negative.
  explicit BackwardBits(absl::string_view bytes) : bytes_(bytes) {
    const uint8_t last =
        bytes.empty() ? 0 : static_cast<uint8_t>(bytes[bytes.size() - 1]);
    left_ = last == 0 ? -1
                      : static_cast<int64_t>(8 * bytes.size()) - 1 -
                            absl::countl_zero(last);
  }

  // Unread bits; negative once more were read than there are.
  int64_t left() const { return left_; }

  // The next `count` bits, the first of them highest. Where fewer are left,
  // zeros follow them.
  uint64_t Peek(int count) const {
    const uint64_t mask = (uint64_t{1} << count) - 1;
    if (left_ >= count) return Load(left_ - count) & mask;
    if (left_ <= 0) return 0;
    const int missing = count - static_cast<int>(left_);
    return Load(0) << missing & mask;
  }

  // The next 57 bits or more, the first of them highest. REQUIRES: at least 64
  // are left.
  uint64_t Next64() const {
    const size_t end = static_cast<size_t>(left_ + 7) / 8;
    uint64_t word;
    std::memcpy(&word, bytes_.data() + end - sizeof(word), sizeof(word));
    return word << (8 * end - static_cast<size_t>(left_));
  }

  void Skip(int count) { left_ -= count; }

  uint64_t Read(int count) {
    const uint64_t bits = Peek(count);
    Skip(count);
    return bits;
  }

 private:
  // At least 57 bits from bit `first` on, or those there are and zeros.
  uint64_t Load(int64_t first) const {
    const size_t begin = static_cast<size_t>(first) / 8;
    uint64_t word = 0;
    if (bytes_.size() - begin >= sizeof(word)) {
      std::memcpy(&word, bytes_.data() + begin, sizeof(word));
    } else {
      std::memcpy(&word, bytes_.data() + begin, bytes_.size() - begin);
    }
    return word >> (first % 8);
  }

  absl::string_view bytes_;
  int64_t left_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_LAST_STAGE_BACKWARD_BITS_H_
