// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "health.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kvcompress {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kService[] = "kvcompress.v1.CompressionService";

// A Watch call and what it has read.
class Watching {
 public:
  Watching(Health::Stub* stub, const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    reader_ = stub->Watch(&context_, request);
  }

  // UNKNOWN once the stream has ended.
  HealthCheckResponse::ServingStatus Next() {
    HealthCheckResponse response;
    return reader_->Read(&response) ? response.status()
                                    : HealthCheckResponse::UNKNOWN;
  }
  void Cancel() { context_.TryCancel(); }
  grpc::StatusCode Finish() { return reader_->Finish().error_code(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader_;
};

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() : health_({kService}) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    stub_ = Health::NewStub(server_->InProcessChannel({}));
  }
  ~HealthTest() override {
    health_.Shutdown();
    server_->Shutdown();
  }

  grpc::StatusCode Check(const std::string& service,
                         HealthCheckResponse* response) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Check(&context, request, response).error_code();
  }

  HealthCheckResponse::ServingStatus StatusOf(const std::string& service) {
    HealthCheckResponse response;
    EXPECT_EQ(Check(service, &response), grpc::StatusCode::OK);
    return response.status();
  }

  HealthService health_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Health::Stub> stub_;
};

TEST_F(HealthTest, CheckFollowsTheStatus) {
  for (const std::string& service : {std::string(), std::string(kService)}) {
    health_.SetServing(false);
    EXPECT_EQ(StatusOf(service), HealthCheckResponse::NOT_SERVING);
    health_.SetServing(true);
    EXPECT_EQ(StatusOf(service), HealthCheckResponse::SERVING);
  }
  EXPECT_TRUE(health_.serving());
}

TEST_F(HealthTest, BeginsAsNotServing) {
  EXPECT_FALSE(health_.serving());
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthTest, CheckOfAnUnknownServiceIsNotFound) {
  HealthCheckResponse response;
  EXPECT_EQ(Check("kvcompress.v1", &response), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HealthTest, WatchTellsEveryChangeOnce) {
  Watching watch(stub_.get(), kService);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::NOT_SERVING);
  health_.SetServing(false);
  health_.SetServing(true);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::SERVING);
  health_.SetServing(false);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthTest, ServesOnlyWhileItCanBeReached) {
  health_.SetReachable(false);
  health_.SetServing(true);
  EXPECT_FALSE(health_.serving());
  Watching watch(stub_.get(), kService);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::NOT_SERVING);
  health_.SetReachable(true);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::SERVING);
  health_.SetServing(false);
  health_.SetReachable(true);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthTest, WatchOfAnUnknownServiceHearsNothingMore) {
  Watching watch(stub_.get(), "no.such.Service");
  EXPECT_EQ(watch.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  health_.SetServing(true);
  health_.Shutdown();
  EXPECT_EQ(watch.Next(), HealthCheckResponse::UNKNOWN);
  EXPECT_EQ(watch.Finish(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthTest, ShutdownTellsAndEndsEveryWatch) {
  health_.SetServing(true);
  Watching first(stub_.get(), "");
  Watching second(stub_.get(), kService);
  EXPECT_EQ(first.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(second.Next(), HealthCheckResponse::SERVING);
  health_.Shutdown();
  for (Watching* watch : {&first, &second}) {
    EXPECT_EQ(watch->Next(), HealthCheckResponse::NOT_SERVING);
    EXPECT_EQ(watch->Next(), HealthCheckResponse::UNKNOWN);
    EXPECT_EQ(watch->Finish(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(HealthTest, ShutdownIsForGood) {
  health_.Shutdown();
  health_.SetServing(true);
  health_.Shutdown();
  EXPECT_FALSE(health_.serving());
  EXPECT_EQ(StatusOf(kService), HealthCheckResponse::NOT_SERVING);
  Watching late(stub_.get(), kService);
  EXPECT_EQ(late.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(late.Next(), HealthCheckResponse::UNKNOWN);
  EXPECT_EQ(late.Finish(), grpc::StatusCode::UNAVAILABLE);
}

// For the sanitizers: watchers come and go while the status changes.
TEST_F(HealthTest, WatchersMayLeaveAtAnyTime) {
  std::atomic<bool> done = false;
  std::thread flipper([&] {
    for (bool serving = true; !done; serving = !serving) {
      health_.SetServing(serving);
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([this, i] {
      for (int call = 0; call < 50; ++call) {
        Watching watch(stub_.get(), kService);
        for (int read = 0; read < i; ++read) watch.Next();
        watch.Cancel();
        watch.Finish();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  done = true;
  flipper.join();
}

}  // namespace
}  // namespace kvcompress
