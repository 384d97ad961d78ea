// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Reads the head of one HTTP/1.x request, as it arrives in pieces (RFC 9112).
//
// Bodies are not taken, and what follows the head is ignored: a connection
// carries one request. The work is linear in the bytes, however small the
// pieces are. Not thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_REQUEST_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_REQUEST_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace kvcompress {

enum class HttpMethod { kGet, kHead, kOther };

struct HttpRequest {
  HttpMethod method = HttpMethod::kOther;
  // Path of the target, without the query, as it was sent: not decoded.
  std::string path;
};

class HttpRequestReader {
 public:
  // Longest head in bytes, the empty line at its end included.
  static constexpr size_t kMaxHeadBytes = 8192;

  enum class State {
    kReading,   // more has to come
    kComplete,  // request() is there
    kRefused,   // refusal() says why
  };

  // The next bytes of the connection. No effect but on excess() once the state
  // is another than kReading.
  State Add(absl::string_view bytes);

  State state() const { return state_; }
  // Whether anything has come.
  bool begun() const { return begun_; }
  // Whether the client sent more than a head, or said that it will.
  bool excess() const { return excess_; }

  const HttpRequest& request() const { return request_; }
  // The status to answer with: 400 malformed, 413 with a body, 414 target too
  // long, 431 head too long, 505 not HTTP/1.x.
  int refusal() const { return refusal_; }

 private:
  State Refuse(int status);
  State Parse(absl::string_view head);
  bool ParseRequestLine(absl::string_view line);
  bool ParseFields(absl::string_view lines);
  bool ParseField(absl::string_view line);

  std::string buffer_;
  size_t searched_ = 0;  // no end of the head ends before it
  State state_ = State::kReading;
  bool begun_ = false;
  bool excess_ = false;
  HttpRequest request_;
  int refusal_ = 400;
  bool http_1_0_ = false;
  int hosts_ = 0;
  std::string length_;  // of Content-Length; empty for none
  bool body_ = false;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_REQUEST_H_
