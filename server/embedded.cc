// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "embedded.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "flow_control.h"
#include "message_settings.h"
#include "service.h"

namespace kvcompress {
namespace {

class SocketPairServer final : public EmbeddedServer {
 public:
  absl::Status Start(std::shared_ptr<const Profile> profile, unsigned threads) {
    // Whoever calls is this process: it may name every file that it may open.
    ServiceOptions options;
    if (profile != nullptr) {
      std::vector<LoadedProfile> loaded = {{"profile", std::move(profile)}};
      options.profiles =
          std::make_shared<const FixedProfiles>(std::move(loaded));
    }
    options.call_threads = threads;
    options.helpers_nicer = 0;  // nobody else waits
    if (auto root = SharedDirectory::Open("/"); root.ok()) {
      options.shared_directory = *std::move(root);
    }
    try {
      service_ = NewCompressionService(options, /*observer=*/nullptr);
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the embedded server cannot start threads: ", error.what()));
    }
    grpc::ServerBuilder builder;
    SetMessages(options.max_message_bytes, &builder);
    SetFlowControl(&builder);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::InternalError("the embedded server could not be started");
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                   ends) != 0) {
      return absl::ErrnoToStatus(errno,
                                 "the embedded server cannot create sockets");
    }
    // Both take over their end.
    grpc::AddInsecureChannelFromFd(server_.get(), ends[0]);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ =
        grpc::CreateCustomInsecureChannelFromFd("embedded", ends[1], arguments);
    return absl::OkStatus();
  }

  ~SocketPairServer() override {
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

absl::StatusOr<std::unique_ptr<EmbeddedServer>> EmbeddedServer::Start(
    std::shared_ptr<const Profile> profile, unsigned threads) {
  auto server = std::make_unique<SocketPairServer>();
  absl::Status status = server->Start(std::move(profile), threads);
  if (!status.ok()) return status;
  return server;
}

}  // namespace kvcompress
