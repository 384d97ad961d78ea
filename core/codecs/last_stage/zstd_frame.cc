// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/last_stage/zstd_frame.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "codecs/last_stage/backward_bits.h"
#include "codecs/last_stage/zstd_tables.h"
#include "status/macros.h"

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
// Null when there are fewer.
std::optional<uint64_t> TakeNumber(size_t count, absl::string_view* bytes) {
  if (bytes->size() < count) return std::nullopt;
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i) {
    number |= uint64_t{static_cast<uint8_t>((*bytes)[i])} << (8 * i);
  }
  bytes->remove_prefix(count);
  return number;
}

absl::Status Broken(absl::string_view what) {
  return absl::DataLossError(what);
}

// The table of one part of a sequence, which blocks may inherit.
struct SequenceTable {
  const absl::string_view name;
  const int max_accuracy_log;
  const size_t symbols;
  const int default_accuracy_log;
  const absl::Span<const int16_t> defaults;
  FseTable table = {};
  bool known = false;

  // As `mode` says, from the front of `*bytes`.
  absl::Status Take(uint64_t mode, absl::string_view* bytes) {
    switch (mode) {
      case 0:
        table.Build(default_accuracy_log, defaults);
        break;
      case 1: {
        const std::optional<uint64_t> symbol = TakeNumber(1, bytes);
        if (!symbol || *symbol >= symbols) {
          return Broken(
              absl::StrCat("the one code of ", name, " is missing or unknown"));
        }
        table.BuildOne(static_cast<uint8_t>(*symbol));
        break;
      }
      case 2:
        KVC_RETURN_IF_ERROR(
            table.TakeDescription(max_accuracy_log, symbols, bytes));
        break;
      default:
        if (known) break;
        return Broken(absl::StrCat("the table of ", name,
                                   " is that of a block before, and there is "
                                   "none"));
    }
    known = true;
    return absl::OkStatus();
  }
};

class Frame {
 public:
  explicit Frame(size_t size) : size_(size) {}

  absl::Status Check(absl::string_view frame) {
    absl::string_view bytes = frame;
    if (!absl::ConsumePrefix(&bytes, kMagic)) {
      return Broken("the Zstandard frame does not begin with its magic number");
    }
    KVC_RETURN_IF_ERROR(TakeHeader(&bytes));
    bool last = false;
    for (size_t block = 0; !last; ++block) {
      const size_t offset = frame.size() - bytes.size();
      if (absl::Status status = TakeBlock(&bytes, &last); !status.ok()) {
        return Broken(absl::StrCat("block ", block,
                                   " of the Zstandard frame, at its byte ",
                                   offset, ": ", status.message()));
      }
    }
    if (bytes.empty() && done_ == size_) return absl::OkStatus();
    return Broken(absl::StrCat("the blocks of the Zstandard frame give ", done_,
                               " of ", size_, " bytes and leave ",
                               bytes.size()));
  }

 private:
  // Content of less than 256 bytes has a field of 1 byte, of less than 65,792
  // one of 2, which leaves 256 out, and more one of 4. Nothing else is set but
  // the flag of a single segment.
  absl::Status TakeHeader(absl::string_view* bytes) const {
    const uint64_t field = size_ < 256 ? 0 : size_ < 65792 ? 1 : 2;
    const std::optional<uint64_t> descriptor = TakeNumber(1, bytes);
    if (descriptor != (field << 6 | 0x20)) {
      return Broken(absl::StrCat(
          "the descriptor of the Zstandard frame is not that of a single "
          "segment of ",
          size_, " bytes"));
    }
    const std::optional<uint64_t> content =
        TakeNumber(size_t{1} << field, bytes);
    if (!content || *content + (field == 1 ? 256 : 0) != size_) {
      return Broken(absl::StrCat(
          "the header of the Zstandard frame does not say ", size_, " bytes"));
    }
    return absl::OkStatus();
  }

  absl::Status TakeBlock(absl::string_view* bytes, bool* last) {
    const std::optional<uint64_t> header = TakeNumber(3, bytes);
    if (!header) return Broken("its header is cut short");
    *last = (*header & 1) != 0;
    const uint64_t type = *header >> 1 & 3;
    const size_t size = static_cast<size_t>(*header >> 3);
    if (type == 3) return Broken("its type is reserved");
    if (type == 1 && size == 0) return Broken("it repeats a byte 0 times");
    // What repeats a byte has one.
    const size_t stored = type == 1 ? 1 : size;
    if (stored > bytes->size()) return Broken("it is cut short");
    if (type == 2 && size > size_) {
      return Broken("it is larger than the content");
    }
    absl::string_view content = bytes->substr(0, stored);
    bytes->remove_prefix(stored);
    if (type != 2) {
      return Produce(size) ? absl::OkStatus() : Broken("it gives too much");
    }
    size_t literals = 0;
    KVC_RETURN_IF_ERROR(TakeLiterals(&content, &literals));
    return CheckSequences(content, literals);
  }

  // Counts content. False, and nothing counted, for more than is left.
  bool Produce(size_t count) {
    if (count > size_ - done_) return false;
    done_ += count;
    return true;
  }

  // Sets the number of literals.
  absl::Status TakeLiterals(absl::string_view* bytes, size_t* literals) {
    if (bytes->empty()) return Broken("the literals are missing");
    const uint64_t type = static_cast<uint8_t>(bytes->front()) & 3;
    const uint64_t form = static_cast<uint8_t>(bytes->front()) >> 2 & 3;
    if (type < 2) {
      const size_t header_size = form == 1 ? 2 : form == 3 ? 3 : 1;
      const std::optional<uint64_t> header = TakeNumber(header_size, bytes);
      if (!header) return Broken("the header of the literals is cut short");
      *literals = static_cast<size_t>(*header >> (header_size == 1 ? 3 : 4));
      const size_t stored = type == 0 ? *literals : 1;
      KVC_RETURN_IF_ERROR(CheckLiteralSizes(*literals, stored, bytes->size()));
      bytes->remove_prefix(stored);
      return absl::OkStatus();
    }
    const std::optional<uint64_t> header =
        TakeNumber(form < 2 ? 3 : form + 2, bytes);
    if (!header) return Broken("the header of the literals is cut short");
    const int width = form < 2 ? 10 : form == 2 ? 14 : 18;
    const uint64_t mask = (uint64_t{1} << width) - 1;
    *literals = static_cast<size_t>(*header >> 4 & mask);
    const size_t stored = static_cast<size_t>(*header >> (4 + width) & mask);
    if (*literals == 0) return Broken("there are no literals to decode");
    KVC_RETURN_IF_ERROR(CheckLiteralSizes(*literals, stored, bytes->size()));
    absl::string_view streams = bytes->substr(0, stored);
    bytes->remove_prefix(stored);
    if (type == 2) {
      KVC_RETURN_IF_ERROR(lengths_.TakeDescription(&streams));
      has_lengths_ = true;
    }
    if (!has_lengths_) {
      return Broken("the tree is that of a block before, and there is none");
    }
    if (form != 0) return CheckFourStreams(streams, *literals);
    return lengths_.IsStream({streams, *literals})
               ? absl::OkStatus()
               : Broken("the stream of literals does not end where they do");
  }

  absl::Status CheckLiteralSizes(size_t literals, size_t stored,
                                 size_t left) const {
    if (literals > size_ - done_) {
      return Broken("there are more literals than content");
    }
    return stored > left ? Broken("the literals are cut short")
                         : absl::OkStatus();
  }

  absl::Status CheckFourStreams(absl::string_view bytes,
                                size_t literals) const {
    if (literals < 12) {
      return Broken("there are too few literals for four streams");
    }
    const std::optional<uint64_t> jumps = TakeNumber(6, &bytes);
    if (!jumps) return Broken("the sizes of the streams are cut short");
    const size_t part = (literals + 3) / 4;
    HuffmanLengths::Stream streams[4];
    for (int i = 0; i < 3; ++i) {
      const size_t size = static_cast<size_t>(*jumps >> (16 * i) & 0xffff);
      if (size > bytes.size()) {
        return Broken(absl::StrCat("stream ", i, " of literals is cut short"));
      }
      streams[i] = {bytes.substr(0, size), part};
      bytes.remove_prefix(size);
    }
    streams[3] = {bytes, literals - 3 * part};
    return lengths_.AreStreams(streams)
               ? absl::OkStatus()
               : Broken("a stream of literals does not end where they do");
  }

  absl::Status CheckSequences(absl::string_view bytes, size_t literals) {
    const std::optional<uint64_t> first = TakeNumber(1, &bytes);
    if (!first) return Broken("the number of sequences is missing");
    if (*first == 0) {
      const bool good = bytes.empty() && literals > 0 && Produce(literals);
      return good ? absl::OkStatus()
                  : Broken(
                        "it has no sequences, and no literals or more "
                        "bytes after them");
    }
    uint64_t count = *first;
    if (count >= 128) {
      const std::optional<uint64_t> more =
          TakeNumber(count == 255 ? 2 : 1, &bytes);
      if (!more) return Broken("the number of sequences is cut short");
      count = count == 255 ? *more + 0x7f00 : (count - 128) << 8 | *more;
      if (count < 128) {
        return Broken("the number of sequences has a byte too many");
      }
    }
    const std::optional<uint64_t> modes = TakeNumber(1, &bytes);
    if (!modes || (*modes & 3) != 0) {
      return Broken("the modes of the sequences are missing or reserved");
    }
    KVC_RETURN_IF_ERROR(literal_lengths_.Take(*modes >> 6, &bytes));
    KVC_RETURN_IF_ERROR(offsets_.Take(*modes >> 4 & 3, &bytes));
    KVC_RETURN_IF_ERROR(match_lengths_.Take(*modes >> 2 & 3, &bytes));
    return CheckSequenceStream(bytes, count, literals);
  }

  absl::Status CheckSequenceStream(absl::string_view bytes, uint64_t count,
                                   size_t literals) {
    const uint64_t all = count;
    const auto broken = [&](absl::string_view what) {
      return Broken(absl::StrCat("sequence ", all - count, " of ", all, what));
    };
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
      if (bits.left() < 0) break;
      if (literal_length > literals) {
        return broken(" takes more literals than there are");
      }
      literals -= literal_length;
      if (!Produce(literal_length)) return broken(" gives too much");
      if (!TakeOffset(offset, literal_length == 0)) {
        return broken(" has an offset that leads out of the content");
      }
      if (!Produce(match_length)) return broken(" gives too much");
      if (count == 1) {
        // The last sequence has no next states.
        if (bits.left() != 0) return broken(" leaves bits");
        return Produce(literals) ? absl::OkStatus()
                                 : broken(" leaves too many literals");
      }
      l_state = l.base + bits.Read(l.bits);
      m_state = m.base + bits.Read(m.bits);
      o_state = o.base + bits.Read(o.bits);
    }
    return broken(" is cut short");
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
  SequenceTable literal_lengths_ = {
      "literal lengths", 9, kLiteralLengths.size(), 6, kLiteralLengthDefaults};
  SequenceTable offsets_ = {"offsets", 8, kOffsetCodes, 5, kOffsetDefaults};
  SequenceTable match_lengths_ = {"match lengths", 9, kMatchLengths.size(), 6,
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
