// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "service.h"

#include <grpcpp/grpcpp.h>

#include <string>

#include "call.h"
#include "compress_rpc.h"
#include "convert.h"
#include "decompress_rpc.h"
#include "file_rpc.h"
#include "kvcompress/v1/compression_service.grpc.pb.h"
#include "self_test.h"
#include "server_info_rpc.h"
#include "service_state.h"

namespace kvcompress {
namespace {

absl::Status FillSelfTest(const v1::SelfTestRequest& request,
                          RecentSelfTests* tests,
                          v1::SelfTestResponse* response) {
  const absl::StatusOr<std::vector<SelfTestOutcome>> outcomes =
      tests->Get(request.codec());
  if (!outcomes.ok()) return outcomes.status();
  response->set_passed(true);
  for (const SelfTestOutcome& outcome : *outcomes) {
    v1::SelfTestResult& result = *response->add_results();
    result.set_codec(outcome.codec);
    result.set_passed(outcome.status.ok());
    result.set_message(std::string(outcome.status.message()));
    if (outcome.status.ok()) {
      *result.mutable_report() =
          ToProto(outcome.report, /*with_tensors=*/false, outcome.seconds);
    } else {
      response->set_passed(false);
    }
  }
  return absl::OkStatus();
}

// The two methods that carry caches take and give messages as on the wire.
template <typename Base>
using Cached = v1::CompressionService::WithRawCallbackMethod_Compress<
    v1::CompressionService::WithRawCallbackMethod_Decompress<Base>>;
template <typename Base>
using Named = v1::CompressionService::WithCallbackMethod_CompressFile<
    v1::CompressionService::WithCallbackMethod_DecompressFile<Base>>;
template <typename Base>
using Others = v1::CompressionService::WithCallbackMethod_Measure<
    v1::CompressionService::WithCallbackMethod_GetServerInfo<
        v1::CompressionService::WithCallbackMethod_SelfTest<Base>>>;

class Service final
    : public Cached<Named<Others<v1::CompressionService::Service>>> {
 public:
  Service(const ServiceOptions& options, CallObserver* observer)
      : state_(options, observer) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Compress(
      grpc::CallbackServerContext* context) override {
    return NewCompress(context, &state_);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Decompress(
      grpc::CallbackServerContext* context) override {
    return NewDecompress(context, &state_);
  }

  grpc::ServerReadReactor<v1::MeasureRequest>* Measure(
      grpc::CallbackServerContext* context,
      v1::MeasureResponse* response) override {
    return NewMeasure(context, response, &state_);
  }

  grpc::ServerWriteReactor<v1::CompressFileResponse>* CompressFile(
      grpc::CallbackServerContext* context,
      const v1::CompressFileRequest* request) override {
    return NewCompressFile(context, request, &state_);
  }

  grpc::ServerWriteReactor<v1::DecompressFileResponse>* DecompressFile(
      grpc::CallbackServerContext* context,
      const v1::DecompressFileRequest* request) override {
    return NewDecompressFile(context, request, &state_);
  }

  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
      v1::GetServerInfoResponse* response) override {
    return Answer(context, Method::kGetServerInfo, [&](const Call& call) {
      FillServerInfo(state_.options, call.is_local(), response);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* SelfTest(grpc::CallbackServerContext* context,
                                     const v1::SelfTestRequest* request,
                                     v1::SelfTestResponse* response) override {
    return Answer(context, Method::kSelfTest, [&](const Call&) {
      return FillSelfTest(*request, &self_tests_, response);
    });
  }

 private:
  // Answers a unary call at once.
  template <typename Fill>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   Method method, Fill fill) {
    Call call(method, context, &state_);
    absl::Status status = call.Allow();
    if (status.ok()) status = fill(call);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(call.End(status));
    return reactor;
  }

  ServiceState state_;
  RecentSelfTests self_tests_;
};

}  // namespace

absl::string_view MethodName(Method method) {
  switch (method) {
    case Method::kCompress:
      return "Compress";
    case Method::kDecompress:
      return "Decompress";
    case Method::kMeasure:
      return "Measure";
    case Method::kGetServerInfo:
      return "GetServerInfo";
    case Method::kSelfTest:
      return "SelfTest";
    case Method::kCompressFile:
      return "CompressFile";
    case Method::kDecompressFile:
      return "DecompressFile";
  }
  return "Unknown";
}

std::unique_ptr<grpc::Service> NewCompressionService(
    const ServiceOptions& options, CallObserver* observer) {
  return std::make_unique<Service>(options, observer);
}

}  // namespace kvcompress
