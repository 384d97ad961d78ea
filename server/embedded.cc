// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "embedded.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "service.h"

namespace kvcompress {
namespace {

class InProcessServer final : public EmbeddedServer {
 public:
  absl::Status Start() {
    const ServiceOptions options;
    service_ = NewCompressionService(options, /*observer=*/nullptr);
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::InternalError("the embedded server could not be started");
    }
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = server_->InProcessChannel(arguments);
    return absl::OkStatus();
  }

  ~InProcessServer() override {
    channel_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  std::shared_ptr<grpc::Channel> channel() override { return channel_; }

 private:
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedServer>> EmbeddedServer::Start() {
  auto server = std::make_unique<InProcessServer>();
  if (absl::Status status = server->Start(); !status.ok()) return status;
  return server;
}

}  // namespace kvcompress
