// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "service.h"

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "call.h"
#include "compress_rpc.h"
#include "convert.h"
#include "decompress_rpc.h"
#include "file_rpc.h"
#include "guarded.h"
#include "kvcompress/v1/compression_service.grpc.pb.h"
#include "request.h"
#include "self_test.h"
#include "server_info_rpc.h"
#include "service_state.h"
#include "small_call.h"
#include "wire/messages.h"

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

using Bytes = grpc::ByteBuffer;
using Context = grpc::CallbackServerContext;

const google::protobuf::MethodDescriptor& Describe(Method method) {
  static const google::protobuf::ServiceDescriptor& service =
      *v1::CompressRequest::descriptor()->file()->FindServiceByName(
          "CompressionService");
  return *service.method(static_cast<int>(method));
}

// Every method takes its requests as they are on the wire, so that nothing is
// parsed before it is known what that takes.
class Service final : public RawService {
 public:
  Service(const ServiceOptions& options, CallObserver* observer)
      : state_(options, observer) {
    OutOfMemory();
    Add(Method::kCompress, NewCompress);
    Add(Method::kDecompress, NewDecompress);
    Add(Method::kMeasure, NewMeasure);
    Add(Method::kCompressFile, NewCompressFile);
    Add(Method::kDecompressFile, NewDecompressFile);
    AddSmall<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
        Method::kGetServerInfo,
        [this](const Call& call, const v1::GetServerInfoRequest&,
               v1::GetServerInfoResponse* response) {
          FillServerInfo(state_.options, call.is_local(), response);
          return absl::OkStatus();
        });
    AddSmall<v1::SelfTestRequest, v1::SelfTestResponse>(
        Method::kSelfTest,
        [this](const Call&, const v1::SelfTestRequest& request,
               v1::SelfTestResponse* response) {
          return FillSelfTest(request, &self_tests_, response);
        },
        &self_test_queue_);
  }

 private:
  using Make = std::function<RawReactor*(Context*)>;

  void AddMethodOf(Method method, Make make) {
    const std::string name =
        absl::StrCat("/", v1::CompressionService::service_full_name(), "/",
                     MethodName(method));
    AddRaw(names_.insert(name).first->c_str(), std::move(make));
  }

  void Add(Method method, RawReactor* (*make)(Context*, ServiceState*)) {
    AddMethodOf(method, [this, make](Context* context) {
      return make(context, &state_);
    });
  }

  // A method that is answered at once, or when its turn in `queue` comes.
  template <typename Request, typename Response, typename Fill>
  void AddSmall(Method method, Fill fill, SelfTestQueue* queue = nullptr) {
    AddMethodOf(method, [this, method, fill, queue](Context* context) {
      // It is counted from here on, also when its request never comes.
      const auto call = std::make_shared<Call>(method, context, &state_);
      SmallCall::Handler handler;
      handler.answer = [call, fill](const Bytes& bytes, Bytes* answer) {
        return call->End(Guarded([&] {
          absl::Status status = call->Allow();
          // Nobody may want it any more, after a wait for a thread.
          if (status.ok()) status = call->CheckWanted();
          Request request;
          if (status.ok()) {
            status =
                ParseSmallRequest(bytes, ParsedSizeOf<Request>(), &request);
          }
          Response response;
          if (status.ok()) status = fill(*call, request, &response);
          if (status.ok()) *answer = Serialize(response);
          return status;
        }));
      };
      handler.refuse = [call](const absl::Status& error) {
        return call->End(error);
      };
      if (queue != nullptr) {
        handler.place = [call, queue](std::function<void()> task) {
          return queue->Add(call->client(), std::move(task));
        };
      }
      return new SmallCall(context, &state_.small_calls, std::move(handler));
    });
  }

  // gRPC keeps pointers to them.
  std::set<std::string> names_;
  ServiceState state_;
  RecentSelfTests self_tests_;
  SelfTestQueue self_test_queue_;
};

}  // namespace

absl::string_view MethodName(Method method) { return Describe(method).name(); }

absl::string_view MethodType(Method method) {
  const google::protobuf::MethodDescriptor& described = Describe(method);
  if (described.client_streaming()) {
    return described.server_streaming() ? "bidi_stream" : "client_stream";
  }
  return described.server_streaming() ? "server_stream" : "unary";
}

std::unique_ptr<grpc::Service> NewCompressionService(
    const ServiceOptions& options, CallObserver* observer) {
  return std::make_unique<Service>(options, observer);
}

}  // namespace kvcompress
