// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_connection.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/string_view.h"

namespace kvcompress {
namespace {

// Most that is read at once, so that one connection does not hold up others.
constexpr size_t kReadBytes = HttpRequestReader::kMaxHeadBytes;

bool WouldBlock(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace

HttpConnection::HttpConnection(FileDescriptor socket, const HttpPeer& peer,
                               HttpTime now, const Deadlines& deadlines)
    : socket_(std::move(socket)),
      peer_(peer),
      deadlines_(deadlines),
      deadline_(now + deadlines.head),
      idle_since_(now) {}

int16_t HttpConnection::events() const {
  switch (state_) {
    case State::kReading:
    case State::kLingering:
      return POLLIN;
    case State::kSending:
      return POLLOUT;
    default:
      // A client that has closed its half stays readable.
      return 0;
  }
}

void HttpConnection::Receive(HttpTime now) {
  if (state_ == State::kLingering) return Discard();
  char bytes[kReadBytes];
  ssize_t got = 0;
  do {
    got = recv(fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (WouldBlock(got)) return;
  // The client is gone, or has said all that it has to say: half a request.
  if (got <= 0) return Close();
  switch (reader_.Add({bytes, static_cast<size_t>(got)})) {
    case HttpRequestReader::State::kReading:
      return;
    case HttpRequestReader::State::kComplete:
      state_ = State::kReady;
      return;
    case HttpRequestReader::State::kRefused:
      reason_ = HttpClose::kBadRequest;
      return Answer(ErrorResponse(reader_.refusal()), now);
  }
}

void HttpConnection::AwaitRendering(int page, uint64_t ticket, HttpTime now) {
  page_ = page;
  ticket_ = ticket;
  deadline_ = now + deadlines_.answer;
  state_ = State::kRendering;
}

void HttpConnection::Answer(HttpResponse response, HttpTime now) {
  head_ = ResponseHead(response);
  if (request().method == HttpMethod::kHead) {
    response.body = std::make_shared<const std::string>();
  }
  response_ = std::move(response);
  deadline_ = now + deadlines_.answer;
  state_ = State::kSending;
  Send(now);
}

void HttpConnection::Send(HttpTime now) {
  const size_t total = head_.size() + response_.body->size();
  while (sent_ < total) {
    const absl::string_view head =
        absl::string_view(head_).substr(std::min(sent_, head_.size()));
    const absl::string_view body =
        absl::string_view(*response_.body)
            .substr(sent_ - std::min(sent_, head_.size()));
    iovec parts[] = {{const_cast<char*>(head.data()), head.size()},
                     {const_cast<char*>(body.data()), body.size()}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = std::size(parts);
    const ssize_t put = sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (WouldBlock(put)) return;
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Close(reason_);
    sent_ += static_cast<size_t>(put);
    idle_since_ = now;
  }
  Finish();
}

void HttpConnection::Finish() {
  response_.body.reset();
  char byte = 0;
  if (!reader_.excess() && recv(fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) <= 0) {
    return Close(reason_);
  }
  shutdown(fd(), SHUT_WR);
  state_ = State::kLingering;
  Discard();
}

void HttpConnection::Discard() {
  char bytes[kReadBytes];
  const ssize_t got = recv(fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got > 0 || WouldBlock(got) || (got < 0 && errno == EINTR)) return;
  Close(reason_);
}

void HttpConnection::Expire(HttpTime now) {
  switch (state_) {
    case State::kReading:
      // To one that never said anything, nothing is said.
      if (reader_.begun()) Answer(ErrorResponse(408), now);
      return Close(HttpClose::kHeaderTimeout);
    case State::kReady:
    case State::kRendering:
      return Answer(ErrorResponse(503), now);
    case State::kSending:
      return Abort(HttpClose::kWriteTimeout);
    case State::kLingering: {
      int untaken = 0;
      ioctl(fd(), SIOCOUTQ, &untaken);
      return untaken > 0 ? Abort(HttpClose::kWriteTimeout) : Close(reason_);
    }
    case State::kClosed:
      return;
  }
}

void HttpConnection::Abort(std::optional<HttpClose> reason) {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close(reason);
}

void HttpConnection::Evict(HttpClose reason) {
  if (state_ == State::kLingering) return Close(reason_);
  if (state_ == State::kSending) return Abort(reason);
  Close(reason);
}

void HttpConnection::Close(std::optional<HttpClose> reason) {
  socket_ = FileDescriptor();
  response_ = {};
  reason_ = reason;
  state_ = State::kClosed;
}

}  // namespace kvcompress
