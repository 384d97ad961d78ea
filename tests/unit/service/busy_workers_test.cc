// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is served while every thread for streams, or the one for self-tests, is
// held up: by an observer, who is called wherever a call takes a step.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/temp_dir.h"
#include "health.h"
#include "kvcompress/error.h"
#include "kvcompress/v1/compression_service.grpc.pb.h"
#include "message_settings.h"
#include "self_test.h"
#include "service.h"
#include "support/eventually.h"
#include "support/safetensors_file.h"
#include "worker_pool.h"

namespace kvcompress {
namespace {

// Holds up whoever works on a named file, or ends a self-test.
class Holding : public CallObserver {
 public:
  void BytesReceived(Method method, uint64_t) override {
    if (method == Method::kCompressFile) Hold();
  }
  void CallHandled(const CallEnd& end) override {
    if (end.method != Method::kSelfTest) return;
    Hold();
    --held;
  }

  void Hold() {
    const int now = ++held;
    most = std::max(most.load(), now);
    go.WaitForNotification();
  }

  std::atomic<int> held = 0;
  std::atomic<int> most = 0;
  absl::Notification go;
};

class BusyWorkersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("in", testing::MakeFile(
                            {{{.name = "layer_0_key",
                               .dtype = DType::kBF16,
                               .shape = {1, 1, 4, 64}},
                              testing::RandomBytes(DType::kBF16, 256, 1)}}));
    absl::StatusOr<std::shared_ptr<const SharedDirectory>> shared =
        SharedDirectory::Open(folder_.Path("."));
    ASSERT_TRUE(shared.ok()) << shared.status();
    ServiceOptions options;
    options.shared_directory = *std::move(shared);
    service_ = NewCompressionService(options, &observer_);
    health_.SetServing(true);
    const std::string address = absl::StrCat("unix:", folder_.Path("socket"));
    grpc::ServerBuilder builder;
    SetMessages(8 << 20, &builder);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(service_.get());
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    const auto channel =
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    stub_ = v1::CompressionService::NewStub(channel);
    health_stub_ = grpc::health::v1::Health::NewStub(channel);
  }

  void TearDown() override {
    if (!observer_.go.HasBeenNotified()) observer_.go.Notify();
    server_->Shutdown();
  }

  std::future<grpc::StatusCode> Compress(const std::string& input,
                                         const std::string& output) {
    return std::async(std::launch::async, [this, input, output] {
      grpc::ClientContext context;
      v1::CompressFileRequest request;
      request.set_input_path(input);
      request.set_output_path(output);
      const auto reader = stub_->CompressFile(&context, request);
      v1::CompressFileResponse response;
      while (reader->Read(&response)) {
      }
      return reader->Finish().error_code();
    });
  }

  std::future<grpc::StatusCode> SelfTest() {
    return std::async(std::launch::async, [this] {
      grpc::ClientContext context;
      v1::SelfTestRequest request;
      request.set_codec("int4");
      v1::SelfTestResponse response;
      return stub_->SelfTest(&context, request, &response).error_code();
    });
  }

  bool OthersAreServed() {
    const auto deadline =
        std::chrono::system_clock::now() + std::chrono::seconds(20);
    grpc::ClientContext info;
    info.set_deadline(deadline);
    v1::GetServerInfoResponse about;
    grpc::ClientContext check;
    check.set_deadline(deadline);
    grpc::health::v1::HealthCheckResponse health;
    return stub_->GetServerInfo(&info, {}, &about).ok() &&
           health_stub_->Check(&check, {}, &health).ok() &&
           health.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }

  void WaitUntilHeld(int count) const {
    ASSERT_TRUE(testing::Eventually([&] { return observer_.held >= count; }))
        << observer_.held;
  }

  // Long for a call that nothing holds up.
  static constexpr std::chrono::milliseconds kWhile{500};

  TempDir folder_;
  Holding observer_;
  std::unique_ptr<grpc::Service> service_;
  HealthService health_{{}};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::CompressionService::Stub> stub_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_stub_;
};

TEST_F(BusyWorkersTest, FilesAreNamedAndOpenedByWorkersAlone) {
  const int workers = static_cast<int>(WorkerPool::Processors());
  std::vector<std::future<grpc::StatusCode>> calls;
  for (int i = 0; i < workers; ++i) {
    calls.push_back(Compress("in", absl::StrCat("out", i)));
  }
  WaitUntilHeld(workers);
  EXPECT_TRUE(OthersAreServed());
  // That there is no such file is found by whoever opens it.
  std::future<grpc::StatusCode> missing = Compress("none", "out");
  EXPECT_EQ(missing.wait_for(kWhile), std::future_status::timeout);
  EXPECT_TRUE(OthersAreServed());
  observer_.go.Notify();
  EXPECT_EQ(missing.get(), grpc::StatusCode::NOT_FOUND);
  for (auto& call : calls) EXPECT_EQ(call.get(), grpc::StatusCode::OK);
}

TEST_F(BusyWorkersTest, SelfTestsHaveOneThreadAndHoldUpNobody) {
  std::vector<std::future<grpc::StatusCode>> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(SelfTest());
  WaitUntilHeld(1);
  EXPECT_TRUE(OthersAreServed());
  EXPECT_EQ(calls.back().wait_for(kWhile), std::future_status::timeout);
  EXPECT_TRUE(OthersAreServed());
  observer_.go.Notify();
  for (auto& call : calls) EXPECT_EQ(call.get(), grpc::StatusCode::OK);
  EXPECT_EQ(observer_.most, 1);
}

TEST(SelfTestQueueTest, TooManyAreRefusedAndLaterOnesAreTaken) {
  absl::Notification begun;
  absl::Notification go;
  std::atomic<size_t> ran = 0;
  {
    SelfTestQueue queue;
    ASSERT_TRUE(queue
                    .Add("a",
                         [&] {
                           begun.Notify();
                           go.WaitForNotification();
                         })
                    .ok());
    begun.WaitForNotification();
    for (size_t i = 0; i < SelfTestQueue::kMaxWaiting; ++i) {
      ASSERT_TRUE(queue.Add("a", [&] { ++ran; }).ok());
    }
    const absl::Status refused = queue.Add("a", [&] { ++ran; });
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(GetErrorDetail(refused)->reason, "TOO_MANY_STREAMS");
    go.Notify();
    EXPECT_TRUE(
        testing::Eventually([&] { return ran >= SelfTestQueue::kMaxWaiting; }));
    EXPECT_TRUE(queue.Add("a", [&] { ++ran; }).ok());
  }
  EXPECT_EQ(ran, SelfTestQueue::kMaxWaiting + 1);
}

}  // namespace
}  // namespace kvcompress
