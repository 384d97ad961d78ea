// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Memory that runs out in the middle of a call: by an observer, who is called
// wherever a call takes a step.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <string>

#include "kvcompress/v1/compression_service.grpc.pb.h"
#include "message_settings.h"
#include "service.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

enum class Where { kNowhere, kStart, kEnd, kReceived, kSent, kReport, kTime };

class Exhausted : public CallObserver {
 public:
  void CallStarted(Method) override { At(Where::kStart); }
  void CallHandled(const CallEnd&) override { At(Where::kEnd); }
  void BytesReceived(Method, uint64_t) override { At(Where::kReceived); }
  void BytesSent(Method, uint64_t) override { At(Where::kSent); }
  void Compressed(const CompressReport&) override { At(Where::kReport); }
  void CodecTime(absl::string_view, Stage, double) override {
    At(Where::kTime);
  }

  std::atomic<Where> where = Where::kNowhere;

 private:
  void At(Where here) const {
    if (where == here) throw std::bad_alloc();
  }
};

class OutOfMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    service_ = NewCompressionService({}, &observer_);
    grpc::ServerBuilder builder;
    SetMessages(8 << 20, &builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = v1::CompressionService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                            grpc::InsecureChannelCredentials()));
  }

  void TearDown() override { server_->Shutdown(); }

  grpc::Status Measure() {
    grpc::ClientContext context;
    v1::MeasureResponse response;
    const auto stream = stub_->Measure(&context, &response);
    v1::MeasureRequest options;
    options.mutable_options();
    v1::MeasureRequest file;
    file.set_safetensors(testing::RawFile(
        R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}})",
        std::string(32, '\0')));
    if (stream->Write(options)) stream->Write(file);
    stream->WritesDone();
    return stream->Finish();
  }

  grpc::Status Info(bool compressed = false) {
    grpc::ClientContext context;
    if (compressed) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::GetServerInfoResponse response;
    return stub_->GetServerInfo(&context, {}, &response);
  }

  Exhausted observer_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::CompressionService::Stub> stub_;
};

TEST_F(OutOfMemoryTest, IsAnErrorOfTheCallWhereverItIs) {
  for (const Where where : {Where::kStart, Where::kReceived, Where::kSent,
                            Where::kReport, Where::kTime}) {
    observer_.where = where;
    EXPECT_EQ(Measure().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << static_cast<int>(where);
    observer_.where = Where::kNowhere;
    EXPECT_TRUE(Measure().ok());
  }
  observer_.where = Where::kStart;
  EXPECT_EQ(Info().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(OutOfMemoryTest, SpoilsNoCallThatIsOver) {
  observer_.where = Where::kEnd;
  EXPECT_TRUE(Measure().ok());
  EXPECT_TRUE(Info().ok());
}

TEST_F(OutOfMemoryTest, CompressedCallsAreNotBegun) {
  EXPECT_EQ(Info(/*compressed=*/true).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(Info().ok());
}

}  // namespace
}  // namespace kvcompress
