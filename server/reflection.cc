// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "errors.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "guarded.h"
#include "kvcompress/error.h"
#include "parsed_size.h"
#include "request.h"
#include "small_call.h"
#include "wire/messages.h"

namespace kvcompress {
namespace {

namespace v1 = grpc::reflection::v1;
namespace v1alpha = grpc::reflection::v1alpha;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::ServiceDescriptor;

// Full name of the one service of the file that has this message. Naming the
// message has the linker keep the file.
std::string ServiceOf(const Descriptor& message) {
  return message.file()->service(0)->full_name();
}

// Every name that there is. Asking protobuf's own pool instead would keep the
// names that are not there.
class Index {
 public:
  explicit Index(std::vector<std::string> services)
      : services_(std::move(services)) {
    for (const std::string& name : services_) {
      const ServiceDescriptor* const service =
          DescriptorPool::generated_pool()->FindServiceByName(name);
      if (service != nullptr) AddFile(*service->file());
    }
  }

  v1::ServerReflectionResponse Answer(
      const v1::ServerReflectionRequest& request) const {
    v1::ServerReflectionResponse response;
    response.set_valid_host(request.host());
    *response.mutable_original_request() = request;
    using Request = v1::ServerReflectionRequest;
    switch (request.message_request_case()) {
      case Request::kFileByFilename:
        FillFile(files_, request.file_by_filename(), &response);
        break;
      case Request::kFileContainingSymbol:
        FillFile(symbols_, request.file_containing_symbol(), &response);
        break;
      case Request::kFileContainingExtension:
        FillError(absl::StatusCode::kNotFound, "no extensions are defined",
                  &response);
        break;
      case Request::kAllExtensionNumbersOfType:
        FillExtensions(request.all_extension_numbers_of_type(), &response);
        break;
      case Request::kListServices:
        for (const std::string& name : services_) {
          response.mutable_list_services_response()->add_service()->set_name(
              name);
        }
        break;
      case Request::MESSAGE_REQUEST_NOT_SET:
        FillError(absl::StatusCode::kInvalidArgument, "the request is empty",
                  &response);
        break;
    }
    return response;
  }

 private:
  using Files = std::map<std::string, const FileDescriptor*, std::less<>>;

  static void FillError(absl::StatusCode code, const char* message,
                        v1::ServerReflectionResponse* response) {
    v1::ErrorResponse& error = *response->mutable_error_response();
    error.set_error_code(static_cast<int>(code));
    error.set_error_message(message);
  }

  void FillFile(const Files& files, const std::string& name,
                v1::ServerReflectionResponse* response) const {
    const auto found = files.find(name);
    if (found == files.end()) {
      return FillError(absl::StatusCode::kNotFound, "unknown name", response);
    }
    std::vector<const FileDescriptor*> all = {found->second};
    std::set<const FileDescriptor*> seen = {all[0]};
    for (size_t i = 0; i < all.size(); ++i) {
      const FileDescriptor* const file = all[i];
      *response->mutable_file_descriptor_response()
           ->add_file_descriptor_proto() = serialized_.at(file);
      for (int j = 0; j < file->dependency_count(); ++j) {
        const FileDescriptor* const next = file->dependency(j);
        if (seen.insert(next).second) all.push_back(next);
      }
    }
  }

  void FillExtensions(const std::string& type,
                      v1::ServerReflectionResponse* response) const {
    if (!symbols_.contains(type)) {
      return FillError(absl::StatusCode::kNotFound, "unknown name", response);
    }
    response->mutable_all_extension_numbers_response()->set_base_type_name(
        type);
  }

  void AddFile(const FileDescriptor& file) {
    if (!files_.try_emplace(file.name(), &file).second) return;
    google::protobuf::FileDescriptorProto proto;
    file.CopyTo(&proto);
    serialized_[&file] = proto.SerializeAsString();
    for (int i = 0; i < file.dependency_count(); ++i) {
      AddFile(*file.dependency(i));
    }
    for (int i = 0; i < file.message_type_count(); ++i) {
      AddMessage(*file.message_type(i));
    }
    for (int i = 0; i < file.enum_type_count(); ++i) {
      AddEnum(*file.enum_type(i));
    }
    for (int i = 0; i < file.service_count(); ++i) {
      const ServiceDescriptor& service = *file.service(i);
      symbols_[service.full_name()] = &file;
      for (int j = 0; j < service.method_count(); ++j) {
        symbols_[service.method(j)->full_name()] = &file;
      }
    }
  }

  void AddMessage(const Descriptor& type) {
    symbols_[type.full_name()] = type.file();
    for (int i = 0; i < type.field_count(); ++i) {
      symbols_[type.field(i)->full_name()] = type.file();
    }
    for (int i = 0; i < type.oneof_decl_count(); ++i) {
      symbols_[type.oneof_decl(i)->full_name()] = type.file();
    }
    for (int i = 0; i < type.nested_type_count(); ++i) {
      AddMessage(*type.nested_type(i));
    }
    for (int i = 0; i < type.enum_type_count(); ++i) {
      AddEnum(*type.enum_type(i));
    }
  }

  void AddEnum(const EnumDescriptor& type) {
    symbols_[type.full_name()] = type.file();
    for (int i = 0; i < type.value_count(); ++i) {
      symbols_[type.value(i)->full_name()] = type.file();
    }
  }

  const std::vector<std::string> services_;
  Files files_;
  Files symbols_;
  // What answers are made of, so that none serializes it anew.
  std::unordered_map<const FileDescriptor*, std::string> serialized_;
};

// What the streams of all versions share. The messages of the versions are the
// same on the wire, so that those of v1 do for all.
struct Shared {
  Shared(std::vector<std::string> services, const Watchdog::Limits& limits)
      : index(std::move(services)),
        request_size(*v1::ServerReflectionRequest::descriptor(), {}),
        watchdog({.stall = limits.stall,
                  .call = limits.call,
                  .most = kMaxReflectionStreams}) {
    OutOfMemory();
  }

  const Index index;
  const ParsedSize request_size;
  Watchdog watchdog;
};

// One stream: a question, its answer, the next question. Answers take less than
// a millisecond, on gRPC's own threads.
class Stream final : public RawReactor, private WatchedCall {
 public:
  Stream(grpc::CallbackServerContext* context, Shared* shared)
      : WatchedCall(&shared->watchdog, context), shared_(*shared) {
    Read();
  }

 private:
  void Read() {
    const absl::Status status = Guarded([this] { return CheckTime(); });
    if (!status.ok()) return End(status);
    request_.Clear();
    BeginWait(Wait::kRead);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!EndWait()) return;
    if (!ok) return End(absl::OkStatus());
    const absl::Status status = Guarded([this] { return Answer(); });
    if (!status.ok()) return End(status);
    BeginWait(Wait::kWrite);
    StartWrite(&response_);
  }

  absl::Status Answer() {
    v1::ServerReflectionRequest request;
    absl::Status status =
        ParseSmallRequest(request_, shared_.request_size, &request);
    if (status.ok()) response_ = Serialize(shared_.index.Answer(request));
    return status;
  }

  void OnWriteDone(bool ok) override {
    if (!EndWait()) return;
    if (!ok) return End(absl::OkStatus());
    Moved(Wait::kRead, kProgress);
    Moved(Wait::kWrite, kProgress);
    Read();
  }

  void OnCancel() override {}
  void OnDone() override { delete this; }

  void EndCut(const absl::Status& status) override { End(status); }

  void End(const absl::Status& status) {
    Leave();
    Finish(GuardedStatus(status));
  }

  Shared& shared_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

class Service final : public RawService {
 public:
  Service(std::vector<std::string> services, const Watchdog::Limits& limits)
      : shared_(std::move(services), limits) {
    for (const char* const method :
         {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
          "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
      AddRaw(method, [this](grpc::CallbackServerContext* context) {
        return new Stream(context, &shared_);
      });
    }
  }

 private:
  Shared shared_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewReflectionService(
    std::vector<std::string> services, const Watchdog::Limits& limits) {
  services.push_back(ServiceOf(*v1::ServerReflectionRequest::descriptor()));
  services.push_back(
      ServiceOf(*v1alpha::ServerReflectionRequest::descriptor()));
  return std::make_unique<Service>(std::move(services), limits);
}

}  // namespace kvcompress
