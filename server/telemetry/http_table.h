// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The connections of the HTTP endpoint, and which of them is closed when they
// become too many. Newer ones win, so that whoever only holds connections open
// keeps nobody out: not even clients of its own address. When the table is
// full, the client that has most of it loses one, so that a flood displaces
// itself and nobody else.
//
// Of a client, connections go in this order: those that have their answer,
// those that wait for a request, those that take an answer, those that wait for
// one; among equals, what has been idle for longest. Used by one thread.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_TABLE_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_TABLE_H_

#include <cstddef>
#include <functional>
#include <list>
#include <vector>

#include "telemetry/http_connection.h"

namespace kvcompress {

// What happens to connections. Called by the endpoint's thread; an empty
// function is not called.
struct HttpObserver {
  std::function<void(size_t open)> connections;
  std::function<void(HttpClose reason)> closed;
};

class HttpTable {
 public:
  struct Limits {
    size_t connections = 512;  // in all; at least 1
    // Of one HttpPeer, apart from those whose page is being rendered: how long
    // that takes is not up to the client. At least 1.
    size_t per_peer = 256;
    // Answers that clients have not taken yet; those that several share count
    // once. One answer may be longer.
    size_t answer_bytes = 16 << 20;
  };

  HttpTable(const Limits& limits, HttpObserver observer);

  // Takes a connection in, whatever the limits: it may need no more than a
  // moment. std::bad_alloc changes nothing.
  HttpConnection* Add(HttpConnection connection);

  // Closes connections until the limits on numbers hold.
  void BoundNumbers(HttpTime now);
  // Closes the oldest answers being taken until their limit holds.
  void BoundAnswers();
  // Closes one that has its answer or waits for a request. False when there is
  // none.
  bool FreeOne();

  // Forgets those that are closed, and notifies the observer. Returns whether
  // there were any.
  bool Sweep();

  // Reports to the observer how many are open. Sweep does it where that
  // changes.
  void Report() const;

  // In the order in which they came. Those that are closed stay until Sweep.
  std::list<HttpConnection>& all() { return connections_; }
  bool empty() const { return connections_.empty(); }

 private:
  // The connections of one client, in order_: those from `next` on are open.
  struct Client {
    size_t next;
    size_t end;
  };

  void FindClients(HttpTime now);
  void BoundOne(Client* client, HttpTime now);

  const Limits limits_;
  const HttpObserver observer_;
  std::list<HttpConnection> connections_;
  // Of BoundNumbers, kept for their memory.
  std::vector<HttpConnection*> order_;
  std::vector<Client> clients_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_TABLE_H_
