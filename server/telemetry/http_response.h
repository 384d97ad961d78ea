// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the HTTP endpoint answers, apart from where it is sent.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_RESPONSE_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_RESPONSE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace kvcompress {

// Of an answer. Shared by all the connections that are sent the same.
using HttpBody = std::shared_ptr<const std::string>;

inline constexpr char kTextPlain[] = "text/plain; charset=utf-8";
inline constexpr char kHtml[] = "text/html; charset=utf-8";
inline constexpr char kPrometheusText[] =
    "text/plain; version=0.0.4; charset=utf-8";

struct HttpResponse {
  int status = 200;
  const char* content_type = kTextPlain;
  HttpBody body;
};

// In plain text.
HttpResponse TextResponse(int status, absl::string_view text);

// In plain text, for a status that is an error.
HttpResponse ErrorResponse(int status);

// The status line and the fields, with the empty line behind them. Announces
// that the connection will be closed.
std::string ResponseHead(const HttpResponse& response);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_RESPONSE_H_
