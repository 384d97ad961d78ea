// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/last_stage/lz4_block.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

constexpr size_t kMinMatch = 4;
// Literals at the end of a block, and bytes from where its last match begins.
constexpr size_t kLastLiterals = 5;
constexpr size_t kLastMatch = 12;

class Block {
 public:
  Block(absl::string_view bytes, size_t size)
      : length_(bytes.size()), bytes_(bytes), size_(size) {}

  absl::Status Check() {
    bool has_match = false;
    while (!bytes_.empty()) {
      sequence_ = length_ - bytes_.size();
      const uint8_t token = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      const std::optional<size_t> literals = TakeLength(token >> 4);
      if (!literals) return Broken("number of literals is cut short");
      if (*literals > bytes_.size() || *literals > size_ - done_) {
        return Broken("literals do not fit");
      }
      done_ += *literals;
      bytes_.remove_prefix(*literals);
      if (bytes_.empty()) {
        const bool ends = done_ == size_ && (token & 15) == 0 &&
                          (!has_match || *literals >= kLastLiterals);
        return ends ? absl::OkStatus() : Broken("end breaks a rule");
      }
      if (bytes_.size() < 2) return Broken("distance is cut short");
      const size_t distance = static_cast<uint8_t>(bytes_[0]) |
                              size_t{static_cast<uint8_t>(bytes_[1])} << 8;
      bytes_.remove_prefix(2);
      if (distance == 0 || distance > done_) {
        return Broken("distance leads out of the content");
      }
      const std::optional<size_t> more = TakeLength(token & 15);
      if (!more) return Broken("length is cut short");
      const size_t length = *more + kMinMatch;
      if (size_ - done_ < kLastMatch || length > size_ - done_) {
        return Broken("match does not fit");
      }
      done_ += length;
      has_match = true;
    }
    return Broken("end is missing");
  }

 private:
  absl::Status Broken(absl::string_view rule) const {
    return absl::DataLossError(absl::StrCat("the sequence at byte ", sequence_,
                                            " of the LZ4 block: its ", rule));
  }

  // A length whose first four bits are given; 15 goes on in bytes.
  std::optional<size_t> TakeLength(size_t length) {
    if (length != 15) return length;
    uint8_t byte;
    do {
      if (bytes_.empty()) return std::nullopt;
      byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      length += byte;
    } while (byte == 255);
    return length;
  }

  const size_t length_;
  size_t sequence_ = 0;      // where the current one begins
  absl::string_view bytes_;  // unread
  const size_t size_;
  size_t done_ = 0;  // content so far
};

}  // namespace

absl::Status CheckLz4Block(absl::string_view block, size_t size) {
  return Block(block, size).Check();
}

}  // namespace kvcompress
