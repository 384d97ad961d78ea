// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "health.h"

#include <utility>

namespace kvcompress {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch stream. At most one operation, a write or the final Finish, is
// under way at a time; whoever claims it under the service's mutex starts it
// after letting go of the mutex, because gRPC may run a reaction within the
// call. Once Finish is claimed nobody else touches the watcher.
class HealthService::Watcher final
    : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  enum class Step { kNone, kWrite, kFinish };

  Watcher(HealthService* service, bool known)
      : service_(service), known_(known) {}

  // Claims the next operation, if one is due and none is under way. REQUIRES:
  // the service's mutex is held.
  Step Claim() {
    if (busy_) return Step::kNone;
    const Status status =
        known_ ? service_->status_ : HealthCheckResponse::SERVICE_UNKNOWN;
    if (!gone_ && (response_.status() != status)) {
      response_.set_status(status);
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
    if (step == Step::kWrite) StartWrite(&response_);
    if (step == Step::kFinish) {
      Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                          "the server is shutting down"));
    }
  }

  void OnWriteDone(bool ok) override { Continue(/*idle=*/true, !ok); }
  void OnCancel() override { Continue(/*idle=*/false, /*gone=*/true); }
  void OnDone() override { delete this; }

 private:
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
  const bool known_;
  // Guarded by the service's mutex. The response is also read by a write,
  // during which `busy_` keeps it as it is. It begins as UNKNOWN, which is
  // never sent.
  HealthCheckResponse response_;
  bool busy_ = false;
  bool gone_ = false;  // the client is no longer there
};

HealthService::HealthService(const std::vector<std::string>& services)
    : services_([&services] {
        absl::flat_hash_set<std::string> known(services.begin(),
                                               services.end());
        known.emplace("");
        return known;
      }()) {}

HealthService::~HealthService() = default;

void HealthService::SetServing(bool serving) {
  Update(
      serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING,
      /*shutdown=*/false);
}

bool HealthService::serving() const {
  const std::lock_guard lock(mutex_);
  return status_ == HealthCheckResponse::SERVING;
}

void HealthService::Shutdown() {
  Update(HealthCheckResponse::NOT_SERVING, /*shutdown=*/true);
}

void HealthService::Update(Status status, bool shutdown) {
  std::vector<std::pair<Watcher*, Watcher::Step>> steps;
  {
    const std::lock_guard lock(mutex_);
    if (shutdown_) return;
    status_ = status;
    shutdown_ = shutdown;
    const std::vector<Watcher*> watchers(watchers_.begin(), watchers_.end());
    for (Watcher* watcher : watchers) {
      const Watcher::Step step = watcher->Claim();
      if (step != Watcher::Step::kNone) steps.emplace_back(watcher, step);
    }
  }
  for (const auto& [watcher, step] : steps) watcher->Start(step);
}

grpc::ServerUnaryReactor* HealthService::Check(
    grpc::CallbackServerContext* context, const HealthCheckRequest* request,
    HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!services_.contains(request->service())) {
    reactor->Finish(
        grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown service"));
    return reactor;
  }
  {
    const std::lock_guard lock(mutex_);
    response->set_status(status_);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  auto* watcher = new Watcher(this, services_.contains(request->service()));
  Watcher::Step step = Watcher::Step::kNone;
  {
    const std::lock_guard lock(mutex_);
    watchers_.insert(watcher);
    step = watcher->Claim();
  }
  watcher->Start(step);
  return watcher;
}

}  // namespace kvcompress
