// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// One connection of the HTTP endpoint: a request, an answer, and the end. No
// call of it blocks. Used by one thread.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_CONNECTION_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "file_descriptor.h"
#include "telemetry/http_request.h"
#include "telemetry/http_response.h"

namespace kvcompress {

// Of a clock that nobody can set.
using HttpTime = std::chrono::steady_clock::time_point;
using HttpDuration = std::chrono::steady_clock::duration;

// Who is counted as one client, see HostKey in listening_socket.h.
using HttpPeer = std::string;

// Why the endpoint ended a connection other than by an answer to its request.
enum class HttpClose : uint8_t {
  kHeaderTimeout,  // the head of its request did not come in time
  kWriteTimeout,   // it did not take its answer in time
  kEvicted,        // for a newer one, as no slot or descriptor was left
  kAddressLimit,   // for a newer one of the same client
  kBadRequest,     // answered with 400, 413, 414, 431 or 505
};
inline constexpr int kHttpCloseCount = 5;

class HttpConnection {
 public:
  enum class State : uint8_t {
    kReading,    // the head of the request comes
    kReady,      // it has come
    kRendering,  // the answer is being made
    kSending,    // the answer is being sent
    // All is sent. Closing now, with bytes of the client unread, would have TCP
    // tell it to drop the answer: what it sends is thrown away until it closes.
    kLingering,
    kClosed,
  };
  struct Deadlines {
    HttpDuration head;    // from the start to the end of the head
    HttpDuration answer;  // for making the answer, and again for taking it
  };

  // Takes over `socket`, which does not block.
  HttpConnection(FileDescriptor socket, const HttpPeer& peer, HttpTime now,
                 const Deadlines& deadlines);

  // Reads what has come. Answers a request that is refused.
  void Receive(HttpTime now);
  // REQUIRES: kReady. Waits for rendering number `ticket` of `page`.
  void AwaitRendering(int page, uint64_t ticket, HttpTime now);
  // Begins the answer. REQUIRES: kReady or kRendering.
  void Answer(HttpResponse response, HttpTime now);
  // Sends more of it. REQUIRES: kSending.
  void Send(HttpTime now);
  // What its deadline asks for. REQUIRES: the deadline has passed.
  void Expire(HttpTime now);
  // Closes it for the sake of others. One that has its answer loses nothing.
  void Evict(HttpClose reason);
  void Close(std::optional<HttpClose> reason = std::nullopt);

  State state() const { return state_; }
  bool closed() const { return state_ == State::kClosed; }
  // Why, once it is closed; nothing for the usual end.
  std::optional<HttpClose> reason() const { return reason_; }
  HttpTime deadline() const { return deadline_; }
  // How long it has been idle: since it was opened, or was last given bytes of
  // its answer.
  HttpTime idle_since() const { return idle_since_; }
  const HttpPeer& peer() const { return peer_; }
  const HttpRequest& request() const { return reader_.request(); }
  int page() const { return page_; }
  uint64_t ticket() const { return ticket_; }
  // Of the answer being sent; null when there is none.
  const HttpBody& body() const { return response_.body; }

  // For poll().
  int fd() const { return socket_.get(); }
  int16_t events() const;

 private:
  void Finish();
  // Makes TCP drop what the client did not take.
  void Abort(std::optional<HttpClose> reason);
  void Discard();

  FileDescriptor socket_;
  const HttpPeer peer_;
  const Deadlines deadlines_;
  HttpTime deadline_;
  HttpTime idle_since_;
  State state_ = State::kReading;
  std::optional<HttpClose> reason_;
  HttpRequestReader reader_;
  int page_ = 0;
  uint64_t ticket_ = 0;
  HttpResponse response_;
  std::string head_;
  size_t sent_ = 0;  // of head and body together
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_CONNECTION_H_
