// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/last_stage/lz4_block.h"

#include <cstdint>

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
      size_t literals = token >> 4;
      if (!Lengthen(&literals) || literals > bytes_.size() ||
          literals > size_ - done_) {
        return Broken("literals do not fit");
      }
      done_ += literals;
      bytes_.remove_prefix(literals);
      if (bytes_.empty()) {
        const bool ends = done_ == size_ && (token & 15) == 0 &&
                          (!has_match || literals >= kLastLiterals);
        return ends ? absl::OkStatus() : Broken("end breaks a rule");
      }
      if (bytes_.size() < 2) return Broken("distance is cut short");
      const size_t distance = static_cast<uint8_t>(bytes_[0]) |
                              size_t{static_cast<uint8_t>(bytes_[1])} << 8;
      bytes_.remove_prefix(2);
      size_t length = token & 15;
      if (distance == 0 || distance > done_) {
        return Broken("distance leads out of the content");
      }
      if (!Lengthen(&length)) return Broken("length is cut short");
      length += kMinMatch;
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

  // Adds the bytes that go on with a length of 15.
  bool Lengthen(size_t* length) {
    if (*length != 15) return true;
    uint8_t byte;
    do {
      if (bytes_.empty()) return false;
      byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      *length += byte;
    } while (byte == 255);
    return true;
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
