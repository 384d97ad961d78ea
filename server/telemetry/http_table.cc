// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_table.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace kvcompress {
namespace {

using State = HttpConnection::State;

// A request may come this much later than its connection, as those that take
// their answers are not closed any sooner.
constexpr auto kJustCome = std::chrono::milliseconds(5);

// Connections above the limits, as they come, for which there is memory.
constexpr size_t kMomentary = 256;

constexpr int kAnswered = 0;
constexpr int kWaits = 1;
constexpr int kTakesAnswer = 2;
constexpr int kWaitsForUs = 3;

// How soon a connection is closed for another: 0 first.
int Rank(const HttpConnection& connection, HttpTime now) {
  switch (connection.state()) {
    case State::kLingering:
      return kAnswered;
    case State::kReading:
      return now - connection.idle_since() < kJustCome ? kTakesAnswer : kWaits;
    case State::kSending:
      return kTakesAnswer;
    default:
      return kWaitsForUs;
  }
}

}  // namespace

HttpTable::HttpTable(const Limits& limits, HttpObserver observer)
    : limits_(limits), observer_(std::move(observer)) {
  order_.reserve(limits.connections + kMomentary);
  clients_.reserve(limits.connections + kMomentary);
}

HttpConnection* HttpTable::Add(HttpConnection connection) {
  connections_.push_back(std::move(connection));
  return &connections_.back();
}

void HttpTable::FindClients(HttpTime now) {
  order_.clear();
  clients_.clear();
  for (HttpConnection& each : connections_) {
    if (!each.closed()) order_.push_back(&each);
  }
  const auto key = [now](const HttpConnection* each) {
    return std::tuple(each->peer(), Rank(*each, now), each->idle_since());
  };
  std::sort(order_.begin(), order_.end(),
            [&](const auto* a, const auto* b) { return key(a) < key(b); });
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i == 0 || order_[i]->peer() != order_[i - 1]->peer()) {
      clients_.push_back({i, i});
    }
    clients_.back().end = i + 1;
  }
}

void HttpTable::BoundOne(Client* client, HttpTime now) {
  size_t counted = 0;
  for (size_t i = client->next; i < client->end; ++i) {
    if (Rank(*order_[i], now) != kWaitsForUs) ++counted;
  }
  for (; counted > limits_.per_peer; --counted) {
    order_[client->next++]->Evict(HttpClose::kAddressLimit);
  }
}

void HttpTable::BoundNumbers(HttpTime now) {
  FindClients(now);
  size_t open = 0;
  for (Client& client : clients_) {
    BoundOne(&client, now);
    open += client.end - client.next;
  }
  for (; open > limits_.connections; --open) {
    const auto most = std::max_element(clients_.begin(), clients_.end(),
                                       [](const Client& a, const Client& b) {
                                         return a.end - a.next < b.end - b.next;
                                       });
    order_[most->next++]->Evict(HttpClose::kEvicted);
  }
}

void HttpTable::BoundAnswers() {
  std::unordered_set<const std::string*> kept;
  size_t bytes = 0;
  std::for_each(
      connections_.rbegin(), connections_.rend(), [&](HttpConnection& each) {
        const std::string* body = each.body().get();
        if (body == nullptr || kept.contains(body)) return;
        if (kept.empty() || bytes + body->size() <= limits_.answer_bytes) {
          kept.insert(body);
          bytes += body->size();
        } else {
          each.Evict(HttpClose::kEvicted);
        }
      });
}

bool HttpTable::FreeOne() {
  HttpConnection* victim = nullptr;
  for (HttpConnection& each : connections_) {
    // The first that has its answer, or else the first that waits.
    if (each.state() == State::kLingering) {
      victim = &each;
      break;
    }
    if (each.state() == State::kReading && victim == nullptr) victim = &each;
  }
  if (victim == nullptr) return false;
  victim->Evict(HttpClose::kEvicted);
  return true;
}

bool HttpTable::Sweep() {
  const size_t removed =
      connections_.remove_if([&](const HttpConnection& each) {
        if (!each.closed()) return false;
        if (each.reason().has_value() && observer_.closed) {
          observer_.closed(*each.reason());
        }
        return true;
      });
  if (removed > 0) Report();
  return removed > 0;
}

void HttpTable::Report() const {
  if (!observer_.connections) return;
  observer_.connections(static_cast<size_t>(std::count_if(
      connections_.begin(), connections_.end(),
      [](const HttpConnection& each) { return !each.closed(); })));
}

}  // namespace kvcompress
