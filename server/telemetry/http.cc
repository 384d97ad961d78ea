// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http.h"

#include <CivetServer.h>
#include <spdlog/spdlog.h>

#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace kvcompress {
namespace {

constexpr char kTextPlain[] = "text/plain; charset=utf-8";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kPrometheusText[] = "text/plain; version=0.0.4; charset=utf-8";

struct Reply {
  const char* status;
  const char* content_type;
  std::string body;
};

class Handler final : public CivetHandler {
 public:
  explicit Handler(HttpEndpoint::Content content)
      : content_(std::move(content)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    return Answer(connection, /*with_body=*/true);
  }
  bool handleHead(CivetServer*, mg_connection* connection) override {
    return Answer(connection, /*with_body=*/false);
  }

 private:
  Reply ReplyTo(absl::string_view path) const {
    if (path == "/metrics") {
      return {"200 OK", kPrometheusText, content_.metrics()};
    }
    if (path == "/healthz") {
      if (content_.serving()) return {"200 OK", kTextPlain, "SERVING\n"};
      return {"503 Service Unavailable", kTextPlain, "NOT_SERVING\n"};
    }
    if (path == "/statusz") return {"200 OK", kHtml, content_.status()};
    return {"404 Not Found", kTextPlain, "not found\n"};
  }

  bool Answer(mg_connection* connection, bool with_body) const {
    const char* path = mg_get_request_info(connection)->local_uri;
    const Reply reply = ReplyTo(path == nullptr ? "" : path);
    const std::string head = absl::StrCat(
        "HTTP/1.1 ", reply.status, "\r\nContent-Type: ", reply.content_type,
        "\r\nContent-Length: ", reply.body.size(),
        "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
        "\r\nContent-Security-Policy: default-src 'none'; "
        "style-src 'unsafe-inline'; frame-ancestors 'none'"
        "\r\nConnection: close\r\n\r\n");
    mg_write(connection, head.data(), head.size());
    if (with_body) mg_write(connection, reply.body.data(), reply.body.size());
    return true;
  }

  const HttpEndpoint::Content content_;
};

int LogMessage(const mg_connection*, const char* message) {
  spdlog::debug("HTTP: {}", message);
  return 1;
}

class CivetEndpoint final : public HttpEndpoint {
 public:
  CivetEndpoint(const ListenAddress& address, Content content)
      : handler_(std::move(content)), address_(address) {
    CivetCallbacks callbacks;
    callbacks.log_message = LogMessage;
    const std::vector<std::string> options = {
        "listening_ports",    address.ToString(),
        "num_threads",        "3",
        "request_timeout_ms", "5000",
        "tcp_nodelay",        "1"};
    server_ = std::make_unique<CivetServer>(options, &callbacks);
    server_->addHandler("/", handler_);
    const std::vector<int> ports = server_->getListeningPorts();
    if (!ports.empty()) address_.port = static_cast<uint16_t>(ports.front());
  }

  // civetweb looks whether it should stop when a connection comes, and else
  // only every two seconds: so knock.
  ~CivetEndpoint() override {
    absl::Notification closed;
    std::thread closer([&] {
      server_->close();
      closed.Notify();
    });
    while (!closed.WaitForNotificationWithTimeout(absl::Milliseconds(10))) {
      Knock(address_);
    }
    closer.join();
  }

  const ListenAddress& address() const override { return address_; }

 private:
  Handler handler_;
  ListenAddress address_;
  std::unique_ptr<CivetServer> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const ListenAddress& address, Content content) {
  try {
    return std::make_unique<CivetEndpoint>(address, std::move(content));
  } catch (const CivetException&) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ",
                                               address.ToString(), ": ",
                                               ExplainBindFailure(address)));
  }
}

}  // namespace kvcompress
