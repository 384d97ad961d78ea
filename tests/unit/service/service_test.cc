// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The service behind the embedded server: the order of messages, the details
// of errors, and the self-test.

#include "service.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "embedded.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kvcompress/v1/compression_service.grpc.pb.h"
#include "kvcompress/version.h"
#include "self_test.h"
#include "support/safetensors_file.h"
#include "tuning.h"

namespace kvcompress {
namespace {

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = EmbeddedServer::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::CompressionService::NewStub(server_->channel());
  }

  // Sends messages and returns the status, with what came back.
  grpc::Status Compress(const std::vector<v1::CompressRequest>& requests,
                        std::vector<v1::CompressResponse>* responses) {
    grpc::ClientContext context;
    auto stream = stub_->Compress(&context);
    for (const auto& request : requests) {
      if (!stream->Write(request)) break;
    }
    stream->WritesDone();
    v1::CompressResponse response;
    while (stream->Read(&response)) responses->push_back(response);
    return stream->Finish();
  }

  grpc::Status Compress(const std::vector<v1::CompressRequest>& requests) {
    std::vector<v1::CompressResponse> responses;
    return Compress(requests, &responses);
  }

  std::unique_ptr<EmbeddedServer> server_;
  std::unique_ptr<v1::CompressionService::Stub> stub_;
};

v1::CompressRequest Options() {
  v1::CompressRequest request;
  request.mutable_options()->set_codec("int4");
  return request;
}

v1::CompressRequest Bytes(std::string bytes) {
  v1::CompressRequest request;
  request.set_safetensors(std::move(bytes));
  return request;
}

google::rpc::ErrorInfo Info(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  google::rpc::ErrorInfo info;
  EXPECT_GE(details.details_size(), 1);
  EXPECT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.domain(), "kvcompress.v1");
  return info;
}

std::string SmallFile() {
  return testing::MakeFile(
      {{{.name = "layer_0_key", .dtype = DType::kBF16, .shape = {1, 1, 4, 64}},
        testing::RandomBytes(DType::kBF16, 256, 1)}});
}

TEST_F(ServiceTest, StreamsBeginPayloadHeaderTrailer) {
  std::vector<v1::CompressResponse> responses;
  ASSERT_TRUE(Compress({Options(), Bytes(SmallFile())}, &responses).ok());
  ASSERT_EQ(responses.size(), 4);
  const v1::CompressBegin& begin = responses[0].begin();
  EXPECT_EQ(begin.codec(), "int4:64");
  EXPECT_EQ(responses[1].artefact().offset(), begin.reserved_header_bytes());
  EXPECT_EQ(responses[2].artefact().offset(), 0);
  EXPECT_EQ(responses[2].artefact().data().size(),
            begin.reserved_header_bytes());
  const v1::CompressionReport& report = responses[3].trailer();
  EXPECT_EQ(report.compressed_size_bytes(),
            responses[1].artefact().data().size() +
                responses[2].artefact().data().size());
  EXPECT_EQ(report.tensors_size(), 0);
  EXPECT_EQ(report.worst_tensor().name(), "layer_0_key");
  EXPECT_TRUE(testing::DecompressFile(responses[2].artefact().data() +
                                      responses[1].artefact().data())
                  .ok());
}

// Names of the bounds that a tensor misses: those that the request set, or the
// defaults.
std::vector<std::string> Missed(const v1::TensorReport& tensor,
                                bool requested) {
  std::vector<std::string> bounds;
  for (const v1::MissedBound& missed : tensor.verdict().missed()) {
    if (missed.requested() == requested) bounds.push_back(missed.bound());
  }
  return bounds;
}

TEST_F(ServiceTest, TellsRequestedBoundsFromDefaults) {
  using Names = std::vector<std::string>;
  const auto tensor = [](const char* name, std::vector<uint64_t> shape) {
    return testing::NamedTensor{
        TensorSpec{
            .name = name, .dtype = DType::kF32, .shape = std::move(shape)},
        testing::RandomBytes(DType::kF32, 256, 1)};
  };
  const std::string file = testing::MakeFile({tensor("layer_0_key", {4, 64}),
                                              tensor("layer_0_value", {4, 64}),
                                              tensor("other", {4, 64})});
  v1::CompressRequest request = Options();
  v1::CompressOptions& options = *request.mutable_options();
  options.set_report_tensors(true);
  options.mutable_thresholds()->set_max_rmse(1e-9);
  options.mutable_thresholds()->set_max_error(1e9);
  options.mutable_thresholds()->set_min_token_snr_db_p1(1);
  options.mutable_key_thresholds()->set_max_rmse(1e9);
  options.mutable_key_thresholds()->set_min_cosine_similarity(2);
  options.mutable_value_thresholds()->set_min_centred_snr_db(1);
  std::vector<v1::CompressResponse> responses;
  ASSERT_TRUE(Compress({request, Bytes(file)}, &responses).ok());
  const v1::CompressionReport& report = responses.back().trailer();
  ASSERT_EQ(report.tensors_size(), 3);
  EXPECT_EQ(Missed(report.tensors(0), true),
            (Names{"min_cosine_similarity", "min_token_snr_db_p1"}))
      << "keys have bounds of their own, and these no tokens";
  EXPECT_EQ(Missed(report.tensors(1), true),
            (Names{"max_rmse", "min_token_snr_db_p1"}))
      << "min_centred_snr_db is for keys";
  EXPECT_EQ(Missed(report.tensors(2), true), (Names{"max_rmse"}));
  for (const v1::TensorReport& each : report.tensors()) {
    EXPECT_EQ(each.verdict().missed_size(), each.verdict().violations_size());
  }
}

TEST_F(ServiceTest, RefusesMessagesOutOfOrder) {
  v1::CompressRequest table;
  table.mutable_tensors();
  v1::CompressRequest data;
  data.mutable_tensor_data();
  for (const std::vector<v1::CompressRequest>& requests :
       std::vector<std::vector<v1::CompressRequest>>{
           {},
           {Bytes("x")},
           {table},
           {v1::CompressRequest()},
           {Options(), Options()},
           {Options(), v1::CompressRequest()},
           {Options(), data},
           {Options(), Bytes("x"), table},
           {Options(), table, Bytes("x")},
           {Options(), table, table}}) {
    const grpc::Status status = Compress(requests);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(Info(status).reason(), "INVALID_MESSAGE_ORDER");
  }
}

TEST_F(ServiceTest, ErrorsNameFieldTensorAndOffset) {
  v1::CompressRequest options = Options();
  options.mutable_options()->set_codec("int4:48");
  grpc::Status status = Compress({options});
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(Info(status).metadata().at("field"), "options.codec");
  google::rpc::Status details;
  google::rpc::BadRequest bad_request;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_EQ(details.details_size(), 2);
  ASSERT_TRUE(details.details(1).UnpackTo(&bad_request));
  EXPECT_EQ(bad_request.field_violations(0).field(), "options.codec");

  const std::string file = SmallFile();
  status = Compress({Options(), Bytes(file.substr(0, file.size() - 3))});
  EXPECT_EQ(Info(status).reason(), "TRUNCATED");
  EXPECT_EQ(Info(status).metadata().at("tensor"), "layer_0_key");
  EXPECT_EQ(Info(status).metadata().at("offset"),
            std::to_string(file.size() - 3));
}

TEST_F(ServiceTest, LongAndStrangeNamesDoNotBreakTheError) {
  const std::string name = std::string(100000, 'n') + "\n\"ü";
  const grpc::Status status = Compress(
      {Options(), Bytes(testing::MakeFile(
                      {{{.name = name, .dtype = DType::kF8E4M3, .shape = {1}},
                        "\x7f"}}))});  // NaN
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(Info(status).metadata().at("tensor").size(), 200);
  EXPECT_LT(status.error_message().size(), 400);
}

TEST_F(ServiceTest, MeasureReportsWhatCompressDoes) {
  std::vector<v1::CompressResponse> responses;
  ASSERT_TRUE(Compress({Options(), Bytes(SmallFile())}, &responses).ok());
  v1::CompressionReport expected = responses.back().trailer();

  const auto measure = [&](bool reconstruct, v1::MeasureResponse* response) {
    grpc::ClientContext context;
    auto writer = stub_->Measure(&context, response);
    v1::MeasureRequest request;
    request.mutable_options()->set_codec("int4");
    request.mutable_options()->set_reconstruct(reconstruct);
    writer->Write(request);
    request.set_safetensors(SmallFile());
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  };
  v1::MeasureResponse response;
  ASSERT_TRUE(measure(false, &response).ok());
  expected.clear_processing_seconds();
  response.mutable_report()->clear_processing_seconds();
  EXPECT_EQ(response.report().SerializeAsString(),
            expected.SerializeAsString());
  EXPECT_EQ(measure(true, &response).error_code(), grpc::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, GetServerInfoDescribesTheBuild) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.version(), kVersion);
  EXPECT_EQ(info.format_version(), 1);
  EXPECT_EQ(info.codecs(0).name(), "int4");
  const v1::CodecParameter& group = info.codecs(0).parameters(0);
  EXPECT_EQ(group.values_size(), 3);
  EXPECT_EQ(group.type(), v1::CodecParameter::TYPE_INTEGER);
  EXPECT_EQ(group.range(), "32, 64 or 128");
  EXPECT_EQ(group.default_value(), "64");
  EXPECT_TRUE(info.codecs(0).fixed_size());
  EXPECT_GT(info.limits().max_message_bytes(), 1 << 20);
}

TEST(MethodTest, NamesAndTypesAreThoseOfTheService) {
  EXPECT_EQ(
      v1::CompressRequest::descriptor()->file()->service(0)->method_count(),
      kMethodCount);
  const auto described = [](Method method) {
    return std::pair(MethodName(method), MethodType(method));
  };
  using Described = std::pair<absl::string_view, absl::string_view>;
  EXPECT_EQ(described(Method::kCompress), Described("Compress", "bidi_stream"));
  EXPECT_EQ(described(Method::kDecompress),
            Described("Decompress", "bidi_stream"));
  EXPECT_EQ(described(Method::kMeasure), Described("Measure", "client_stream"));
  EXPECT_EQ(described(Method::kCompressFile),
            Described("CompressFile", "server_stream"));
  EXPECT_EQ(described(Method::kDecompressFile),
            Described("DecompressFile", "server_stream"));
  EXPECT_EQ(described(Method::kGetServerInfo),
            Described("GetServerInfo", "unary"));
  EXPECT_EQ(described(Method::kSelfTest), Described("SelfTest", "unary"));
}

TEST_F(ServiceTest, SelfTestPasses) {
  grpc::ClientContext context;
  v1::SelfTestResponse response;
  ASSERT_TRUE(stub_->SelfTest(&context, {}, &response).ok());
  EXPECT_TRUE(response.passed()) << response.DebugString();
  EXPECT_GE(response.results_size(), 3);
  EXPECT_TRUE(RunSelfTest().ok());
  grpc::ClientContext other;
  v1::SelfTestRequest request;
  request.set_codec("nope");
  EXPECT_EQ(stub_->SelfTest(&other, request, &response).error_code(),
            grpc::INVALID_ARGUMENT);
}

TEST(KeepGrpcTest, LastServerLeavesItUp) {
  KeepGrpc();
  { ASSERT_TRUE(EmbeddedServer::Start().ok()); }
  EXPECT_EQ(grpc_is_initialized(), 1);
}

TEST(RecentSelfTests, AnswerForASecond) {
  RecentSelfTests::Clock::time_point now;
  RecentSelfTests tests([&now] { return now; });
  const auto seconds = [&tests](const char* codec) {
    return tests.Get(codec)->front().seconds;
  };
  const double first = seconds("int4");
  EXPECT_NE(seconds("int8"), first) << "each codec has its own";
  now += RecentSelfTests::kFresh - std::chrono::nanoseconds(1);
  EXPECT_EQ(seconds("int4"), first);
  now += std::chrono::nanoseconds(1);
  EXPECT_NE(seconds("int4"), first);
  EXPECT_FALSE(tests.Get("nope").ok());
}

TEST(RecentSelfTests, RunOneAtATime) {
  RecentSelfTests tests([] { return RecentSelfTests::Clock::time_point(); });
  std::vector<std::thread> callers;
  std::vector<double> seconds(8);
  for (double& each : seconds) {
    callers.emplace_back([&] { each = tests.Get("int4")->front().seconds; });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(seconds, std::vector<double>(8, seconds[0])) << "one of them ran";
}

}  // namespace
}  // namespace kvcompress
