// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/last_stage/zstd_frame.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "codecs/last_stage/backward_bits.h"
#include "codecs/last_stage/zstd_tables.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kMagic = "\x28\xb5\x2f\xfd";

// The first value of a code, and the bits that are added to it.
struct CodeRange {
  uint32_t base;
  uint8_t bits;
};

constexpr auto kLiteralLengths = [] {
  std::array<CodeRange, 36> codes = {};
  constexpr uint8_t kBits[] = {1, 1, 1, 1,  2,  2,  3,  3,  4,  6,
                               7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  uint32_t base = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = {base, i < 16 ? uint8_t{0} : kBits[i - 16]};
    base += 1u << codes[i].bits;
  }
  return codes;
}();

constexpr auto kMatchLengths = [] {
  std::array<CodeRange, 53> codes = {};
  constexpr uint8_t kBits[] = {1, 1, 1, 1,  2,  2,  3,  3,  4,  4, 5,
                               7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  uint32_t base = 3;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = {base, i < 32 ? uint8_t{0} : kBits[i - 32]};
    base += 1u << codes[i].bits;
  }
  return codes;
}();

constexpr size_t kOffsetCodes = 32;

// Probabilities of section 3.1.1.3.2.2.
constexpr int16_t kLiteralLengthDefaults[] = {
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
    2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
constexpr int16_t kOffsetDefaults[] = {1, 1, 1, 1, 1,  1,  2,  2,  2, 1,
                                       1, 1, 1, 1, 1,  1,  1,  1,  1, 1,
                                       1, 1, 1, 1, -1, -1, -1, -1, -1};
constexpr int16_t kMatchLengthDefaults[] = {
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1,  1,  1,  1,  1,  1,  1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};

// Takes a little-endian number of `count` bytes, at most 8, from the front.
// False when there are fewer.
bool TakeNumber(size_t count, absl::string_view* bytes, uint64_t* number) {
  if (bytes->size() < count) return false;
  *number = 0;
  for (size_t i = 0; i < count; ++i) {
    *number |= uint64_t{static_cast<uint8_t>((*bytes)[i])} << (8 * i);
  }
  bytes->remove_prefix(count);
  return true;
}

// The table of one part of a sequence, which blocks may inherit.
struct SequenceTable {
  const int max_accuracy_log;
  const size_t symbols;
  const int default_accuracy_log;
  const absl::Span<const int16_t> defaults;
  FseTable table = {};
  bool known = false;

  // As `mode` says, from the front of `*bytes`.
  bool Take(uint64_t mode, absl::string_view* bytes) {
    switch (mode) {
      case 0:
        table.Build(default_accuracy_log, defaults);
        break;
      case 1: {
        uint64_t symbol;
        if (!TakeNumber(1, bytes, &symbol) || symbol >= symbols) return false;
        table.BuildOne(static_cast<uint8_t>(symbol));
        break;
      }
      case 2:
        if (!table.TakeDescription(max_accuracy_log, symbols, bytes)) {
          return false;
        }
        break;
      default:
        return known;
    }
    known = true;
    return true;
  }
};

class Frame {
 public:
  explicit Frame(size_t size) : size_(size) {}

  absl::Status Check(absl::string_view frame) {
    absl::string_view bytes = frame;
    if (!absl::ConsumePrefix(&bytes, kMagic) || !TakeHeader(&bytes)) {
      return absl::DataLossError(
          "the header of the Zstandard frame breaks a rule");
    }
    bool last = false;
    for (size_t block = 0; !last; ++block) {
      const size_t offset = frame.size() - bytes.size();
      const Section broken = TakeBlock(&bytes, &last);
      if (broken == Section::kNone) continue;
      return absl::DataLossError(
          absl::StrCat("block ", block, " of the Zstandard frame, at its byte ",
                       offset, ": the ", SectionName(broken), " break a rule"));
    }
    if (bytes.empty() && done_ == size_) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("the blocks of the Zstandard frame give ", done_, " of ",
                     size_, " bytes and leave ", bytes.size()));
  }

 private:
  // What breaks a rule in a block.
  enum class Section : uint8_t { kNone, kHeader, kLiterals, kSequences };

  static absl::string_view SectionName(Section section) {
    constexpr absl::string_view kNames[] = {"", "type and size", "literals",
                                            "sequences"};
    return kNames[static_cast<int>(section)];
  }

  // Content of less than 256 bytes has a field of 1 byte, of less than 65,792
  // one of 2, which leaves 256 out, and more one of 4. Nothing else is set but
  // the flag of a single segment.
  bool TakeHeader(absl::string_view* bytes) const {
    const uint64_t field = size_ < 256 ? 0 : size_ < 65792 ? 1 : 2;
    uint64_t descriptor;
    uint64_t content;
    return TakeNumber(1, bytes, &descriptor) &&
           descriptor == (field << 6 | 0x20) &&
           TakeNumber(size_t{1} << field, bytes, &content) &&
           content + (field == 1 ? 256 : 0) == size_;
  }

  Section TakeBlock(absl::string_view* bytes, bool* last) {
    uint64_t header;
    if (!TakeNumber(3, bytes, &header)) return Section::kHeader;
    *last = (header & 1) != 0;
    const size_t block = static_cast<size_t>(header >> 3);
    switch (header >> 1 & 3) {
      case 0:
        if (block > bytes->size()) return Section::kHeader;
        bytes->remove_prefix(block);
        return Produce(block) ? Section::kNone : Section::kHeader;
      case 1:
        if (bytes->empty() || block == 0) return Section::kHeader;
        bytes->remove_prefix(1);
        return Produce(block) ? Section::kNone : Section::kHeader;
      case 2: {
        if (block > std::min(bytes->size(), size_)) return Section::kHeader;
        absl::string_view content = bytes->substr(0, block);
        bytes->remove_prefix(block);
        size_t literals;
        if (!TakeLiterals(&content, &literals)) return Section::kLiterals;
        return CheckSequences(content, literals) ? Section::kNone
                                                 : Section::kSequences;
      }
      default:
        return Section::kHeader;
    }
  }

  // Counts content, and refuses too much of it.
  bool Produce(size_t count) {
    if (count > size_ - done_) return false;
    done_ += count;
    return true;
  }

  // Gives the number of literals.
  bool TakeLiterals(absl::string_view* bytes, size_t* literals) {
    if (bytes->empty()) return false;
    const uint64_t type = static_cast<uint8_t>(bytes->front()) & 3;
    const uint64_t form = static_cast<uint8_t>(bytes->front()) >> 2 & 3;
    uint64_t header;
    if (type < 2) {
      const size_t header_size = form == 1 ? 2 : form == 3 ? 3 : 1;
      if (!TakeNumber(header_size, bytes, &header)) return false;
      *literals = static_cast<size_t>(header >> (header_size == 1 ? 3 : 4));
      const size_t stored = type == 0 ? *literals : 1;
      if (*literals > size_ - done_ || stored > bytes->size()) return false;
      bytes->remove_prefix(stored);
      return true;
    }
    if (!TakeNumber(form < 2 ? 3 : form + 2, bytes, &header)) return false;
    const int width = form < 2 ? 10 : form == 2 ? 14 : 18;
    const uint64_t mask = (uint64_t{1} << width) - 1;
    *literals = static_cast<size_t>(header >> 4 & mask);
    const size_t stored = static_cast<size_t>(header >> (4 + width) & mask);
    if (*literals == 0 || *literals > size_ - done_ || stored > bytes->size()) {
      return false;
    }
    absl::string_view streams = bytes->substr(0, stored);
    bytes->remove_prefix(stored);
    if (type == 2) {
      has_lengths_ = lengths_.TakeDescription(&streams);
    }
    if (!has_lengths_) return false;
    return form == 0 ? lengths_.IsStream({streams, *literals})
                     : AreFourStreams(streams, *literals);
  }

  bool AreFourStreams(absl::string_view bytes, size_t literals) const {
    if (literals < 12) return false;
    uint64_t jumps;
    if (!TakeNumber(6, &bytes, &jumps)) return false;
    const size_t part = (literals + 3) / 4;
    HuffmanLengths::Stream streams[4];
    for (int i = 0; i < 3; ++i) {
      const size_t size = static_cast<size_t>(jumps >> (16 * i) & 0xffff);
      if (size > bytes.size()) return false;
      streams[i] = {bytes.substr(0, size), part};
      bytes.remove_prefix(size);
    }
    streams[3] = {bytes, literals - 3 * part};
    return lengths_.AreStreams(streams);
  }

  bool CheckSequences(absl::string_view bytes, size_t literals) {
    uint64_t count;
    if (!TakeNumber(1, &bytes, &count)) return false;
    if (count == 0) return bytes.empty() && literals > 0 && Produce(literals);
    uint64_t more;
    if (count == 255) {
      if (!TakeNumber(2, &bytes, &more)) return false;
      count = more + 0x7f00;
    } else if (count >= 128) {
      if (!TakeNumber(1, &bytes, &more)) return false;
      count = (count - 128) << 8 | more;
      if (count < 128) return false;
    }
    uint64_t modes;
    return TakeNumber(1, &bytes, &modes) && (modes & 3) == 0 &&
           literal_lengths_.Take(modes >> 6, &bytes) &&
           offsets_.Take(modes >> 4 & 3, &bytes) &&
           match_lengths_.Take(modes >> 2 & 3, &bytes) &&
           CheckSequenceStream(bytes, count, literals);
  }

  bool CheckSequenceStream(absl::string_view bytes, uint64_t count,
                           size_t literals) {
    BackwardBits bits(bytes);
    const FseTable& l_table = literal_lengths_.table;
    const FseTable& o_table = offsets_.table;
    const FseTable& m_table = match_lengths_.table;
    size_t l_state = bits.Read(l_table.accuracy_log());
    size_t o_state = bits.Read(o_table.accuracy_log());
    size_t m_state = bits.Read(m_table.accuracy_log());
    for (; bits.left() >= 0; --count) {
      const FseTable::State l = l_table[l_state];
      const FseTable::State o = o_table[o_state];
      const FseTable::State m = m_table[m_state];
      const size_t offset =
          (size_t{1} << o.symbol) + static_cast<size_t>(bits.Read(o.symbol));
      const CodeRange& match = kMatchLengths[m.symbol];
      const size_t match_length = match.base + bits.Read(match.bits);
      const CodeRange& literal = kLiteralLengths[l.symbol];
      const size_t literal_length = literal.base + bits.Read(literal.bits);
      if (bits.left() < 0 || literal_length > literals) return false;
      literals -= literal_length;
      if (!Produce(literal_length) ||
          !TakeOffset(offset, literal_length == 0) || !Produce(match_length)) {
        return false;
      }
      // The last sequence has no next states.
      if (count == 1) return bits.left() == 0 && Produce(literals);
      l_state = l.base + bits.Read(l.bits);
      m_state = m.base + bits.Read(m.bits);
      o_state = o.base + bits.Read(o.bits);
    }
    return false;
  }

  // Whether an offset, by its value in the stream, lies in the content so far.
  bool TakeOffset(size_t value, bool no_literals) {
    size_t index = 3;
    size_t offset = value - 3;
    if (value <= 3) {
      index = value - 1 + (no_literals ? 1 : 0);
      offset = index < 3 ? recent_[index] : recent_[0] - 1;
    }
    if (offset == 0 || offset > done_) return false;
    // Those before its place move up by one.
    for (size_t i = std::min<size_t>(index, 2); i > 0; --i) {
      recent_[i] = recent_[i - 1];
    }
    recent_[0] = offset;
    return true;
  }

  const size_t size_;
  size_t done_ = 0;  // content so far
  HuffmanLengths lengths_;
  bool has_lengths_ = false;
  SequenceTable literal_lengths_ = {9, kLiteralLengths.size(), 6,
                                    kLiteralLengthDefaults};
  SequenceTable offsets_ = {8, kOffsetCodes, 5, kOffsetDefaults};
  SequenceTable match_lengths_ = {9, kMatchLengths.size(), 6,
                                  kMatchLengthDefaults};
  size_t recent_[3] = {1, 4, 8};
};

}  // namespace

absl::Status CheckZstdFrame(absl::string_view frame, size_t size) {
  if (size > kMaxZstdContent) {
    return absl::DataLossError(
        absl::StrCat("a Zstandard frame has content of at most ",
                     kMaxZstdContent, " bytes, and not ", size));
  }
  return Frame(size).Check(frame);
}

}  // namespace kvcompress
