// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "health.h"

#include <memory>
#include <new>
#include <utility>

#include "errors.h"
#include "guarded.h"
#include "kvcompress/error.h"
#include "request.h"
#include "wire/messages.h"

namespace kvcompress {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch stream: reads the request, and is then admitted among those that
// are notified. From there on at most one operation, a write or the final
// Finish, is under way at a time; whoever claims it under the service's mutex
// starts it after letting go of the mutex, because gRPC may run a reaction
// within the call. Once Finish is claimed nobody else touches the watcher.
class HealthService::Watcher final : public RawReactor, private WatchedCall {
 public:
  enum class Step { kNone, kWrite, kFinish };

  Watcher(HealthService* service, grpc::CallbackServerContext* context)
      : WatchedCall(&service->watchdog_, context), service_(service) {
    for (const Status status :
         {HealthCheckResponse::SERVING, HealthCheckResponse::NOT_SERVING,
          HealthCheckResponse::SERVICE_UNKNOWN}) {
      HealthCheckResponse response;
      response.set_status(status);
      responses_[status] = Serialize(response);
    }
    BeginWait(Wait::kRead);
    StartRead(&request_);
  }

  // Claims the next operation, if one is due and none is under way. REQUIRES:
  // the service's mutex is held.
  Step Claim() {
    if (busy_ || !admitted_) return Step::kNone;
    const Status status =
        known_ ? service_->status_ : HealthCheckResponse::SERVICE_UNKNOWN;
    if (!gone_ && status_ != status) {
      status_ = status;
      busy_ = true;
      return Step::kWrite;
    }
    if (gone_ || service_->shutdown_) {
      busy_ = true;
      service_->watchers_.erase(this);
      return Step::kFinish;
    }
    return Step::kNone;
  }

  void Start(Step step) {
    if (step == Step::kWrite) StartWrite(&responses_[status_]);
    if (step != Step::kFinish) return;
    grpc::Status status = NoMemory();
    Attempt([&] {
      status = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                            "the server is shutting down");
    });
    Leave();
    Finish(status);
  }

  void OnReadDone(bool ok) override {
    if (!EndWait()) return;
    const absl::Status status =
        Guarded([&] { return ok ? Admit() : NoRequest(); });
    status.ok() ? Continue(/*idle=*/false, /*gone=*/false) : EndCut(status);
  }
  void OnWriteDone(bool ok) override { Continue(/*idle=*/true, !ok); }
  void OnCancel() override { Continue(/*idle=*/false, /*gone=*/true); }
  void OnDone() override { delete this; }

  // Of Update, which links those that it claimed.
  Step step = Step::kNone;
  Watcher* next = nullptr;

 private:
  // Becomes one of those that are notified.
  absl::Status Admit() {
    HealthCheckRequest asked;
    absl::Status status =
        ParseSmallRequest(request_, service_->request_size_, &asked);
    if (!status.ok()) return status;
    request_.Clear();
    const std::lock_guard lock(service_->mutex_);
    if (service_->watchers_.size() >= kMaxWatchers) {
      return MakeError(absl::StatusCode::kResourceExhausted,
                       "too many Watch streams are open",
                       {.reason = "TOO_MANY_STREAMS", .limit = kMaxWatchers});
    }
    known_ = service_->services_.contains(asked.service());
    service_->watchers_.insert(this);
    admitted_ = true;
    return absl::OkStatus();
  }

  void EndCut(const absl::Status& status) override {
    Leave();
    Finish(GuardedStatus(status));
  }

  void Continue(bool idle, bool gone) {
    Step step = Step::kNone;
    {
      const std::lock_guard lock(service_->mutex_);
      if (idle) busy_ = false;
      if (gone) gone_ = true;
      step = Claim();
    }
    Start(step);
  }

  HealthService* const service_;
  grpc::ByteBuffer request_;
  // What there is to say, by status: later it takes no memory to say it.
  grpc::ByteBuffer responses_[HealthCheckResponse::SERVICE_UNKNOWN + 1];
  // Guarded by the service's mutex. The status is also read by whoever starts a
  // write, during which `busy_` keeps it as it is. UNKNOWN is never sent.
  Status status_ = HealthCheckResponse::UNKNOWN;
  bool known_ = false;
  bool admitted_ = false;
  bool busy_ = false;
  bool gone_ = false;  // the client is no longer there
};

HealthService::HealthService(const std::vector<std::string>& services)
    : services_([&services] {
        std::set<std::string, std::less<>> known(services.begin(),
                                                 services.end());
        known.emplace("");
        return known;
      }()),
      request_size_(*HealthCheckRequest::descriptor(), /*limits=*/{}),
      watchdog_(
          {.stall = kSmallRequestTime, .most = kMaxWatchers + kMaxSmallCalls}) {
  OutOfMemory();
  AddRaw("/grpc.health.v1.Health/Check",
         [this](grpc::CallbackServerContext* context) {
           return new SmallCall(
               context, &watchdog_,
               {.answer = [this](const grpc::ByteBuffer& request,
                                 grpc::ByteBuffer* response) {
                 return Check(request, response);
               }});
         });
  AddRaw("/grpc.health.v1.Health/Watch",
         [this](grpc::CallbackServerContext* context) {
           return new Watcher(this, context);
         });
}

HealthService::~HealthService() = default;

void HealthService::SetServing(bool serving) {
  Update([&] { serving_ = serving; });
}

void HealthService::SetReachable(bool reachable) {
  Update([&] { reachable_ = reachable; });
}

bool HealthService::serving() const {
  const std::lock_guard lock(mutex_);
  return status_ == HealthCheckResponse::SERVING;
}

void HealthService::Shutdown() {
  Update([&] {
    serving_ = false;
    shutdown_ = true;
  });
}

void HealthService::Update(absl::FunctionRef<void()> change) {
  Watcher* next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (shutdown_) return;
    change();
    status_ = serving_ && reachable_ ? HealthCheckResponse::SERVING
                                     : HealthCheckResponse::NOT_SERVING;
    for (auto at = watchers_.begin(); at != watchers_.end();) {
      // A step may take the watcher out of the set.
      Watcher* const watcher = *at++;
      const Watcher::Step step = watcher->Claim();
      if (step == Watcher::Step::kNone) continue;
      watcher->step = step;
      watcher->next = std::exchange(next, watcher);
    }
  }
  while (next != nullptr) {
    // It may be gone as soon as it is started.
    Watcher* const watcher = std::exchange(next, next->next);
    watcher->Start(watcher->step);
  }
}

grpc::Status HealthService::Check(const grpc::ByteBuffer& request,
                                  grpc::ByteBuffer* response) {
  return ToGrpcStatus(Guarded([&] {
    HealthCheckRequest asked;
    absl::Status parsed = ParseSmallRequest(request, request_size_, &asked);
    if (!parsed.ok()) return parsed;
    if (!services_.contains(asked.service())) {
      return MakeError(absl::StatusCode::kNotFound, "unknown service",
                       {.reason = "UNKNOWN_SERVICE", .field = "service"});
    }
    HealthCheckResponse answer;
    answer.set_status(serving() ? HealthCheckResponse::SERVING
                                : HealthCheckResponse::NOT_SERVING);
    *response = Serialize(answer);
    return absl::OkStatus();
  }));
}

}  // namespace kvcompress
