// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "telemetry/http_listener.h"
#include "telemetry/http_renderer.h"

namespace kvcompress {
namespace {

using State = HttpConnection::State;

// Indexes of the renderer's pages.
constexpr int kMetricsPage = 0;
constexpr int kStatusPage = 1;

// Connections taken before those that are there get their turn, and before
// numbers are bounded again.
constexpr int kMaxAccepted = 64;
// How long nobody is taken where no descriptor can be had.
constexpr auto kBackOff = std::chrono::milliseconds(50);
// Of one poll; a longer wait is several.
constexpr auto kLongestNap = std::chrono::hours(1);
// How long requests that have come are answered at the end.
constexpr auto kLastAnswers = std::chrono::seconds(1);

// Runs `step` of a connection, which is closed when there is no memory for it.
template <typename Step>
void Guarded(HttpConnection* connection, Step step) {
  try {
    step();
  } catch (...) {
    connection->Evict(HttpClose::kEvicted);
  }
}

class PollingEndpoint final : public HttpEndpoint {
 public:
  PollingEndpoint(const ListenAddress& address, HttpListener listener,
                  FileDescriptor wake, Content content, HttpOptions options)
      : address_(address),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        serving_(std::move(content.serving)),
        alive_(std::move(content.alive)),
        index_(std::make_shared<const std::string>(std::move(content.index))),
        deadlines_(options.deadlines),
        table_(options.limits, std::move(options.observer)),
        renderer_({std::move(content.metrics), std::move(content.status)},
                  [this] { Wake(); }) {
    polled_.reserve(options.limits.connections + listener_->sockets().size() +
                    1);
    thread_ = std::thread(&PollingEndpoint::Run, this);
  }

  ~PollingEndpoint() override {
    stop_ = true;
    Wake();
    thread_.join();
  }

  const ListenAddress& address() const override { return address_; }

 private:
  static HttpTime Now() { return std::chrono::steady_clock::now(); }

  void Wake() const { eventfd_write(wake_.get(), 1); }

  void Run() {
    while (!stop_) Round(HttpTime::max());
    // Those who have asked by now get their answer.
    Round(Now());
    listener_.reset();
    const HttpTime end = Now() + kLastAnswers;
    while (AnswersAreDue() && Now() < end) Round(end);
    for (HttpConnection& each : table_.all()) each.Close();
    table_.Sweep();
  }

  void Round(HttpTime latest) {
    try {
      Wait(NextDeadline(latest));
      Turn();
    } catch (...) {
      // There is no memory; let somebody free some.
      table_.FreeOne();
      std::this_thread::sleep_for(kBackOff);
    }
  }

  bool AnswersAreDue() {
    return std::any_of(table_.all().begin(), table_.all().end(),
                       [](const HttpConnection& each) {
                         return each.state() == State::kRendering ||
                                each.state() == State::kSending;
                       });
  }

  HttpTime NextDeadline(HttpTime latest) {
    if (no_descriptors_until_) {
      latest = std::min(latest, *no_descriptors_until_);
    }
    for (const HttpConnection& each : table_.all()) {
      latest = std::min(latest, each.deadline());
    }
    return latest;
  }

  // Until something is ready, or `deadline`. polled_ then has the wake-up, the
  // connections in their order, and the listening sockets.
  void Wait(HttpTime deadline) {
    polled_.clear();
    polled_.push_back({wake_.get(), POLLIN, 0});
    for (const HttpConnection& each : table_.all()) {
      polled_.push_back({each.fd(), each.events(), 0});
    }
    connections_polled_ = polled_.size() - 1;
    if (listener_ && !no_descriptors_until_) {
      for (const FileDescriptor& socket : listener_->sockets()) {
        polled_.push_back({socket.get(), POLLIN, 0});
      }
    }
    using std::chrono::milliseconds;
    const HttpDuration left = std::clamp<HttpDuration>(
        deadline - std::min(deadline, Now()), milliseconds(0), kLongestNap);
    const auto nap = std::chrono::ceil<milliseconds>(left);
    if (poll(polled_.data(), polled_.size(), static_cast<int>(nap.count())) <
            0 &&
        errno != EINTR) {
      std::this_thread::sleep_for(kBackOff);
    }
    eventfd_t wakes = 0;
    if (polled_[0].revents != 0) eventfd_read(wake_.get(), &wakes);
  }

  // One round over everything. Whoever asks for health is answered while
  // requests are read, and so before all others.
  void Turn() {
    const HttpTime now = Now();
    size_t place = 0;
    for (HttpConnection& each : table_.all()) {
      const int16_t events = EventsAt(place++);
      if (events == 0) continue;
      Guarded(&each, [&] { Read(&each, events, now); });
    }
    Accept(now);
    // Before a page is rendered that says how many there are.
    table_.Report();
    place = 0;
    for (HttpConnection& each : table_.all()) {
      const int16_t events = EventsAt(place++);
      Guarded(&each, [&] { Proceed(&each, events, now); });
    }
    Deliver(now);
    for (HttpConnection& each : table_.all()) {
      if (each.closed() || each.deadline() > now) continue;
      Guarded(&each, [&] { each.Expire(now); });
    }
    table_.BoundNumbers(now);
    if (table_.Sweep() ||
        (no_descriptors_until_ && *no_descriptors_until_ <= now)) {
      no_descriptors_until_.reset();
    }
    reserve_.Refill();
  }

  // What poll() said of a connection, by its place in the table: those that
  // came later have not been asked about.
  int16_t EventsAt(size_t place) const {
    if (place >= connections_polled_) return 0;
    return polled_[1 + place].revents;
  }

  void Read(HttpConnection* connection, int16_t events, HttpTime now) {
    switch (connection->state()) {
      case State::kReading:
      case State::kLingering:
        connection->Receive(now);
        return AnswerHealth(connection, now);
      case State::kRendering:
        // Nothing was asked for but what goes wrong.
        if ((events & (POLLERR | POLLHUP)) != 0) connection->Close();
        return;
      default:
        return;
    }
  }

  static bool Holds(const std::function<bool()>& claim) {
    try {
      return claim();
    } catch (...) {
      return false;
    }
  }

  void AnswerHealth(HttpConnection* connection, HttpTime now) const {
    if (connection->state() != State::kReady ||
        connection->request().method == HttpMethod::kOther) {
      return;
    }
    const std::string& path = connection->request().path;
    if (path == "/healthz") {
      connection->Answer(Holds(serving_) ? TextResponse(200, "SERVING\n")
                                         : TextResponse(503, "NOT_SERVING\n"),
                         now);
    } else if (path == "/livez") {
      connection->Answer(Holds(alive_) ? TextResponse(200, "ALIVE\n")
                                       : TextResponse(503, "NOT_ALIVE\n"),
                         now);
    }
  }

  void Accept(HttpTime now) {
    if (!listener_ || no_descriptors_until_) return;
    for (const FileDescriptor& socket : listener_->sockets()) {
      for (int i = 0; i < kMaxAccepted && AcceptOne(socket, now); ++i) {
      }
    }
  }

  // Whether there may be more.
  bool AcceptOne(const FileDescriptor& socket, HttpTime now) {
    FileDescriptor accepted;
    HttpPeer peer;
    auto result = HttpListener::Accept(socket, &accepted, &peer);
    while (result == HttpListener::Result::kNoDescriptors &&
           (table_.FreeOne() || reserve_.Give())) {
      result = HttpListener::Accept(socket, &accepted, &peer);
    }
    if (result == HttpListener::Result::kNoDescriptors) {
      no_descriptors_until_ = now + kBackOff;
    }
    if (result != HttpListener::Result::kAccepted) return false;
    try {
      HttpConnection* connection =
          table_.Add({std::move(accepted), peer, now, deadlines_});
      // Who connects has usually asked already, and may be done with at once.
      Guarded(connection, [&] {
        connection->Receive(now);
        AnswerHealth(connection, now);
        // The last descriptors are for what takes no time.
        if (connection->state() == State::kReady && reserve_.empty()) {
          connection->Answer(ErrorResponse(503), now);
        }
      });
    } catch (...) {
      // There is no memory to take it in: it is closed.
    }
    return true;
  }

  // What is not urgent: requests for other pages, answers that go on.
  void Proceed(HttpConnection* connection, int16_t events, HttpTime now) {
    if (connection->state() == State::kSending && events != 0) {
      return connection->Send(now);
    }
    if (connection->state() != State::kReady) return;
    const HttpRequest& request = connection->request();
    if (request.method == HttpMethod::kOther) {
      connection->Answer(ErrorResponse(405), now);
    } else if (request.path == "/metrics" || request.path == "/statusz") {
      const int page = request.path == "/metrics" ? kMetricsPage : kStatusPage;
      connection->AwaitRendering(page, renderer_.Ask(page), now);
    } else if (request.path == "/") {
      connection->Answer({200, kHtml, index_}, now);
    } else {
      connection->Answer(ErrorResponse(404), now);
    }
  }

  void Deliver(HttpTime now) {
    for (const int page : {kMetricsPage, kStatusPage}) {
      const HttpRenderer::Rendering rendering = renderer_.Take(page);
      if (rendering.number == 0) continue;
      const char* type = page == kMetricsPage ? kPrometheusText : kHtml;
      for (HttpConnection& each : table_.all()) {
        if (each.state() != State::kRendering || each.page() != page ||
            each.ticket() > rendering.number) {
          continue;
        }
        Guarded(&each, [&] {
          each.Answer(rendering.body == nullptr
                          ? ErrorResponse(503)
                          : HttpResponse{200, type, rendering.body},
                      now);
        });
      }
      table_.BoundAnswers();
    }
  }

  ListenAddress address_;
  std::optional<HttpListener> listener_;
  const FileDescriptor wake_;
  const std::function<bool()> serving_;
  const std::function<bool()> alive_;
  const HttpBody index_;
  const HttpConnection::Deadlines deadlines_;
  HttpTable table_;
  DescriptorReserve reserve_;
  std::vector<pollfd> polled_;
  size_t connections_polled_ = 0;
  // While it is set, nobody is taken.
  std::optional<HttpTime> no_descriptors_until_;
  std::atomic<bool> stop_ = false;
  HttpRenderer renderer_;
  std::thread thread_;
};

}  // namespace

HttpTable::Limits HttpLimits(size_t connections) {
  const HttpTable::Limits most;
  HttpTable::Limits limits = most;
  limits.connections = std::clamp<size_t>(connections, 8, most.connections);
  limits.per_peer = limits.connections / 2;
  return limits;
}

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const ListenAddress& address, Content content, HttpOptions options) {
  const auto failed = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ",
                                               address.ToString(), ": ", why));
  };
  ListenAddress bound = address;
  absl::StatusOr<HttpListener> listener = HttpListener::Open(&bound);
  if (!listener.ok()) return failed(listener.status().message());
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.ok()) return failed(std::generic_category().message(errno));
  try {
    return std::make_unique<PollingEndpoint>(
        bound, *std::move(listener), std::move(wake), std::move(content),
        std::move(options));
  } catch (const std::system_error& error) {
    return failed(error.what());
  }
}

}  // namespace kvcompress
