// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace kvcompress {
namespace {

// Characters of methods and of names of fields (RFC 9110, section 5.6.2).
bool IsTokenChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("!#$%&'*+-.^_`|~").find(c) !=
             absl::string_view::npos;
}

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

bool IsControl(char c) {
  return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t';
}

// Cuts the next line off, without its end: CRLF, or LF alone.
absl::string_view NextLine(absl::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  absl::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  absl::ConsumeSuffix(&line, "\r");
  return line;
}

// Where the head ends, its empty line included; npos where that has not come.
// `from`: no end ends before it.
size_t HeadEnd(absl::string_view bytes, size_t from) {
  for (size_t at = bytes.find('\n', from); at != absl::string_view::npos;
       at = bytes.find('\n', at + 1)) {
    const absl::string_view before = bytes.substr(0, at);
    if (absl::EndsWith(before, "\n") || absl::EndsWith(before, "\n\r")) {
      return at + 1;
    }
  }
  return absl::string_view::npos;
}

// The path of a target: "/path?query" or "http://host/path?query".
absl::string_view PathOf(absl::string_view target) {
  const size_t scheme = target.find("://");
  if (!absl::StartsWith(target, "/") && scheme != absl::string_view::npos) {
    target.remove_prefix(scheme + 3);
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  }
  return target.substr(0, target.find('?'));
}

}  // namespace

HttpRequestReader::State HttpRequestReader::Refuse(int status) {
  // A client that is refused may still be sending.
  excess_ = true;
  refusal_ = status;
  return state_ = State::kRefused;
}

HttpRequestReader::State HttpRequestReader::Add(absl::string_view bytes) {
  if (bytes.empty()) return state_;
  begun_ = true;
  if (state_ != State::kReading) {
    excess_ = true;
    return state_;
  }
  // Empty lines before a request are allowed for.
  if (buffer_.empty()) {
    bytes.remove_prefix(
        std::min(bytes.find_first_not_of("\r\n"), bytes.size()));
    if (bytes.empty()) return state_;
    // Another protocol, such as TLS, need not be waited for.
    if (!IsTokenChar(bytes[0])) return Refuse(400);
  }
  const size_t room = kMaxHeadBytes - buffer_.size();
  absl::StrAppend(&buffer_, bytes.substr(0, room));
  const size_t end = HeadEnd(buffer_, searched_);
  if (end != absl::string_view::npos) {
    excess_ = end < buffer_.size() || bytes.size() > room;
    return Parse(absl::string_view(buffer_).substr(0, end));
  }
  searched_ = buffer_.size();
  if (buffer_.size() == kMaxHeadBytes) {
    return Refuse(absl::StrContains(buffer_, '\n') ? 431 : 414);
  }
  return state_;
}

HttpRequestReader::State HttpRequestReader::Parse(absl::string_view head) {
  const absl::string_view line = NextLine(&head);
  if (!ParseRequestLine(line)) return Refuse(refusal_);
  if (!ParseFields(head)) return Refuse(400);
  const bool host_missing = hosts_ == 0 && !http_1_0_;
  if (host_missing || hosts_ > 1) return Refuse(400);
  if (body_) {
    // What the method allows is said before what its body may be.
    if (request_.method != HttpMethod::kOther) return Refuse(413);
    excess_ = true;
  }
  return state_ = State::kComplete;
}

bool HttpRequestReader::ParseRequestLine(absl::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == absl::string_view::npos || last == first) return false;
  const absl::string_view method = line.substr(0, first);
  const absl::string_view target = line.substr(first + 1, last - first - 1);
  absl::string_view version = line.substr(last + 1);
  if (!IsToken(method) || target.empty()) return false;
  if (std::any_of(target.begin(), target.end(), [](char c) {
        return c == ' ' || c == '\t' || IsControl(c);
      })) {
    return false;
  }
  if (!absl::ConsumePrefix(&version, "HTTP/") || version.size() != 3 ||
      !absl::ascii_isdigit(version[0]) || version[1] != '.' ||
      !absl::ascii_isdigit(version[2])) {
    return false;
  }
  if (version[0] != '1') {
    refusal_ = 505;
    return false;
  }
  http_1_0_ = version[2] == '0';
  request_.method = method == "GET"    ? HttpMethod::kGet
                    : method == "HEAD" ? HttpMethod::kHead
                                       : HttpMethod::kOther;
  request_.path = std::string(PathOf(target));
  return true;
}

bool HttpRequestReader::ParseFields(absl::string_view lines) {
  while (true) {
    const absl::string_view line = NextLine(&lines);
    if (line.empty()) return true;
    if (!ParseField(line)) return false;
  }
}

bool HttpRequestReader::ParseField(absl::string_view line) {
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return false;
  const absl::string_view name = line.substr(0, colon);
  const absl::string_view value =
      absl::StripAsciiWhitespace(line.substr(colon + 1));
  // A line that begins with a space, once the continuation of the one before,
  // is no field either.
  if (!IsToken(name) || std::any_of(value.begin(), value.end(), IsControl)) {
    return false;
  }
  if (absl::EqualsIgnoreCase(name, "host")) ++hosts_;
  if (absl::EqualsIgnoreCase(name, "transfer-encoding")) body_ = true;
  if (absl::EqualsIgnoreCase(name, "content-length")) {
    if (value.empty() ||
        !std::all_of(value.begin(), value.end(), absl::ascii_isdigit) ||
        (!length_.empty() && length_ != value)) {
      return false;
    }
    length_ = std::string(value);
    if (value.find_first_not_of('0') != absl::string_view::npos) body_ = true;
  }
  return true;
}

}  // namespace kvcompress
