// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "dial.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "connect.h"
#include "file_descriptor.h"

namespace kvcompress {
namespace {

// What a client sends first, and an empty frame of settings.
constexpr char kHello[] =
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    "\0\0\0\x04\0\0\0\0\0";
constexpr absl::string_view kClientHello(kHello, sizeof(kHello) - 1);
constexpr size_t kFrameHeader = 9;
constexpr size_t kTypeOffset = 3;
constexpr char kSettingsType = 4;
constexpr unsigned char kAlpn[] = {2, 'h', '2'};

absl::Status Closed(absl::string_view why) {
  return absl::UnavailableError(why);
}

// A connection as bytes in both directions, with TLS or without.
class Line {
 public:
  Line(const FileDescriptor& fd, Deadline deadline)
      : fd_(fd), deadline_(deadline) {}

  // Sets up TLS. With `mutual` it only waits until the server has shown its
  // certificate: what follows would fail, and be an error in the server's log.
  absl::Status StartTls(bool mutual) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    if (context_ == nullptr) return absl::InternalError("no TLS context");
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
    if (mutual) {
      SSL_CTX_set_cert_verify_callback(context_.get(), &Suspend, nullptr);
    }
    SSL_CTX_set_alpn_protos(context_.get(), kAlpn, sizeof(kAlpn));
    ssl_.reset(SSL_new(context_.get()));
    if (ssl_ == nullptr) return absl::InternalError("no TLS connection");
    SSL_set_fd(ssl_.get(), fd_.get());
    absl::Status status = Repeat([&] { return SSL_connect(ssl_.get()); });
    return mutual && SSL_want_retry_verify(ssl_.get()) ? absl::OkStatus()
                                                       : status;
  }

  absl::Status Write(absl::string_view bytes) {
    if (ssl_ != nullptr) {
      return Repeat([&] {
        return SSL_write(ssl_.get(), bytes.data(),
                         static_cast<int>(bytes.size()));
      });
    }
    // Few enough that a new socket takes them at once.
    const ssize_t sent =
        send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(bytes.size()) ? absl::OkStatus()
                                                      : SocketError(errno);
  }

  // Reads exactly `size` bytes.
  absl::Status Read(size_t size, std::string* bytes) {
    while (bytes->size() < size) {
      char buffer[64];
      const size_t wanted = std::min(sizeof(buffer), size - bytes->size());
      int got = 0;
      const auto read = [&] {
        got = ssl_ != nullptr
                  ? SSL_read(ssl_.get(), buffer, static_cast<int>(wanted))
                  : static_cast<int>(recv(fd_.get(), buffer, wanted, 0));
        return got;
      };
      absl::Status status = Repeat(read);
      if (!status.ok()) return status;
      bytes->append(buffer, static_cast<size_t>(got));
    }
    return absl::OkStatus();
  }

 private:
  // Stops a handshake at the certificate of the server.
  static int Suspend(X509_STORE_CTX* store, void*) {
    SSL_set_retry_verify(static_cast<SSL*>(X509_STORE_CTX_get_ex_data(
        store, SSL_get_ex_data_X509_STORE_CTX_idx())));
    return 1;
  }

  // Tries until it is done, failed or too late.
  template <typename Operation>
  absl::Status Repeat(Operation operation) {
    while (true) {
      ERR_clear_error();
      const int result = operation();
      if (result > 0) return absl::OkStatus();
      const int16_t events = WaitsFor(result);
      if (events == 0) return Closed("the connection was closed");
      absl::Status status = Await(fd_, events, deadline_);
      if (!status.ok()) return status;
    }
  }

  // What an operation that returned `result` waits for; 0 when it has failed.
  int16_t WaitsFor(int result) const {
    if (ssl_ == nullptr) {
      return result < 0 && (errno == EAGAIN || errno == EINTR) ? POLLIN : 0;
    }
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return POLLIN;
      case SSL_ERROR_WANT_WRITE:
        return POLLOUT;
      default:
        return 0;
    }
  }

  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  const FileDescriptor& fd_;
  const Deadline deadline_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

}  // namespace

absl::Status Dial(const ListenAddress& address, DialSecurity security,
                  absl::Duration timeout) {
  const Deadline deadline =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  const absl::StatusOr<FileDescriptor> fd =
      Connect(Reachable(address), deadline);
  if (!fd.ok()) return fd.status();
  Line line(*fd, deadline);
  if (security != DialSecurity::kPlain) {
    const bool mutual = security == DialSecurity::kMutualTls;
    absl::Status status = line.StartTls(mutual);
    if (!status.ok() || mutual) return status;
  }
  std::string frame;
  absl::Status status = line.Write(kClientHello);
  if (status.ok()) status = line.Read(kFrameHeader, &frame);
  if (status.ok() && frame[kTypeOffset] != kSettingsType) {
    return Closed("what answers is not gRPC");
  }
  return status;
}

}  // namespace kvcompress
