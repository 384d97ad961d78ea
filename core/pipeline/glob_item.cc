// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/glob_item.h"

#include "absl/container/inlined_vector.h"
#include "absl/strings/ascii.h"

namespace kvcompress {
namespace {

struct NamedClass {
  absl::string_view name;
  bool (*has)(unsigned char byte);
};

// Of the C locale.
constexpr NamedClass kClasses[] = {
    {"alnum", absl::ascii_isalnum}, {"alpha", absl::ascii_isalpha},
    {"blank", absl::ascii_isblank}, {"cntrl", absl::ascii_iscntrl},
    {"digit", absl::ascii_isdigit}, {"graph", absl::ascii_isgraph},
    {"lower", absl::ascii_islower}, {"print", absl::ascii_isprint},
    {"punct", absl::ascii_ispunct}, {"space", absl::ascii_isspace},
    {"upper", absl::ascii_isupper}, {"xdigit", absl::ascii_isxdigit},
};

bool AddClass(absl::string_view name, ByteSet* set) {
  for (const NamedClass& each : kClasses) {
    if (each.name != name) continue;
    for (int byte = 0; byte < 256; ++byte) {
      if (each.has(static_cast<unsigned char>(byte))) {
        set->Add(static_cast<uint8_t>(byte));
      }
    }
    return true;
  }
  return false;
}

}  // namespace

GlobItem GlobReader::Next() {
  using Kind = GlobItem::Kind;
  if (position_ == pattern_.size()) return {.kind = Kind::kEnd};
  const char first = pattern_[position_++];
  switch (first) {
    case '*':
      return {.kind = Kind::kStar};
    case '?': {
      GlobItem any = {.kind = Kind::kSet};
      any.set.Invert();
      return any;
    }
    case '\\':
      if (position_ == pattern_.size()) return {.kind = Kind::kNever};
      return {.kind = Kind::kLiteral, .literal = pattern_[position_++]};
    case '[': {
      GlobItem item = {.kind = Kind::kSet};
      switch (ReadBracket(&item.set)) {
        case Bracket::kClosed:
          return item;
        case Bracket::kNever:
          return {.kind = Kind::kNever};
        case Bracket::kUnclosed:
          break;
      }
      break;
    }
    default:
      break;
  }
  return {.kind = Kind::kLiteral, .literal = first};
}

GlobReader::Bracket GlobReader::ReadBracket(ByteSet* set) {
  size_t at = position_;
  const bool inverted = At(at) == '!' || At(at) == '^';
  if (inverted) ++at;
  // Where its members begin, the first aside, which may be a `]`. A later
  // bracket that comes to one of these has no end if this has none.
  absl::InlinedVector<size_t, 16> members;
  for (bool is_first = true;; is_first = false) {
    if (!is_first) {
      if (at < pattern_.size() && pattern_[at] == ']') break;
      if (at >= pattern_.size() || (!endless_.empty() && endless_[at])) {
        endless_.resize(pattern_.size());
        for (const size_t member : members) endless_[member] = true;
        return Bracket::kUnclosed;
      }
      members.push_back(at);
    } else if (at >= pattern_.size()) {
      return Bracket::kUnclosed;
    }
    const std::optional<bool> is_class = ReadClass(&at, set);
    if (!is_class) return Bracket::kNever;
    if (*is_class) continue;
    char low = pattern_[at++];
    if (low == '\\') {
      if (at == pattern_.size()) return Bracket::kNever;
      low = pattern_[at++];
    }
    char high = low;
    if (At(at) == '-' && at + 1 < pattern_.size() && pattern_[at + 1] != ']') {
      high = pattern_[at + 1];
      at += 2;
      if (high == '\\') {
        if (at == pattern_.size()) return Bracket::kNever;
        high = pattern_[at++];
      }
    }
    set->AddRange(static_cast<uint8_t>(low), static_cast<uint8_t>(high));
  }
  position_ = at + 1;
  if (inverted) set->Invert();
  return Bracket::kClosed;
}

std::optional<bool> GlobReader::ReadClass(size_t* at, ByteSet* set) const {
  constexpr size_t kMaxName = 6;
  if (At(*at) != '[') return false;
  if (At(*at + 1) == '=' && At(*at + 3) == '=' && At(*at + 4) == ']') {
    set->Add(static_cast<uint8_t>(pattern_[*at + 2]));
    *at += 5;
    return true;
  }
  if (At(*at + 1) != ':') return false;
  const absl::string_view name = pattern_.substr(*at + 2);
  size_t length = 0;
  while (length < name.size() && absl::ascii_islower(name[length])) ++length;
  if (name.substr(length, 2) != ":]") return false;
  if (length > kMaxName || !AddClass(name.substr(0, length), set)) {
    return std::nullopt;
  }
  *at += 2 + length + 2;
  return true;
}

}  // namespace kvcompress
