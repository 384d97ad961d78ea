// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_response.h"

#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

struct Explanation {
  const char* phrase;  // RFC 9110, section 15
  const char* text;
};

Explanation Explain(int status) {
  switch (status) {
    case 200:
      return {"OK", ""};
    case 404:
      return {"Not Found", "not found\n"};
    case 405:
      return {"Method Not Allowed", "only GET and HEAD are served\n"};
    case 408:
      return {"Request Timeout", "the request did not arrive in time\n"};
    case 413:
      return {"Content Too Large", "requests must not have a body\n"};
    case 414:
      return {"URI Too Long", "the target is too long\n"};
    case 431:
      return {"Request Header Fields Too Large",
              "request headers are limited to 8192 bytes\n"};
    case 503:
      return {"Service Unavailable", "temporarily unavailable; try again\n"};
    case 505:
      return {"HTTP Version Not Supported", "only HTTP/1.x is served\n"};
    default:
      return {"Bad Request", "the request is malformed\n"};
  }
}

}  // namespace

HttpResponse TextResponse(int status, absl::string_view text) {
  return {status, kTextPlain, std::make_shared<const std::string>(text)};
}

HttpResponse ErrorResponse(int status) {
  return TextResponse(status, Explain(status).text);
}

std::string ResponseHead(const HttpResponse& response) {
  return absl::StrCat(
      "HTTP/1.1 ", response.status, " ", Explain(response.status).phrase,
      "\r\nContent-Type: ", response.content_type,
      "\r\nContent-Length: ", response.body->size(),
      response.status == 405 ? "\r\nAllow: GET, HEAD" : "",
      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
      "\r\nContent-Security-Policy: default-src 'none'; "
      "style-src 'unsafe-inline'; frame-ancestors 'none'"
      "\r\nConnection: close\r\n\r\n");
}

}  // namespace kvcompress
