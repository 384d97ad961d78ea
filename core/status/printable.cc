// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Control characters; soft hyphens, marks and overrides of direction,
// separators of lines, joiners and other format characters; noncharacters that
// terminals have been seen to swallow; tags.
constexpr Range kUnsafe[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x061c, 0x061c},
    {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
    {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe0fff}};

bool IsUnsafe(uint32_t code) {
  for (const Range& range : kUnsafe) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

// Bytes of the character that `text` begins with, and its code; 0 when it is
// not UTF-8.
size_t DecodeUtf8(absl::string_view text, uint32_t* code) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) {
    *code = byte(0);
    return 1;
  }
  const size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return 0;
  uint32_t value = byte(0) & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[size] || value > 0x10ffff ||
      (value >= 0xd800 && value < 0xe000)) {
    return 0;
  }
  *code = value;
  return size;
}

std::string Escape(uint32_t code) {
  switch (code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (code < 0x100) {
    return absl::StrCat("\\x", absl::Hex(code, absl::kZeroPad2));
  }
  return code < 0x10000 ? absl::StrCat("\\u", absl::Hex(code, absl::kZeroPad4))
                        : absl::StrCat("\\U", absl::Hex(code, absl::kZeroPad8));
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    uint32_t code = static_cast<uint8_t>(text[0]);
    const size_t size = DecodeUtf8(text, &code);
    if (size == 0 || IsUnsafe(code)) {
      printable += Escape(code);
    } else {
      printable.append(text.data(), size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return printable;
}

}  // namespace kvcompress
