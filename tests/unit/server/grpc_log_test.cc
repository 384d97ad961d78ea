// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/grpc_log.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "address.h"
#include "file_descriptor.h"
#include "support/eventually.h"
#include "tuning.h"

namespace kvcompress {
namespace {

std::atomic<int> lines_written = 0;

// Once in the process.
void CountLines() {
  [[maybe_unused]] static const bool routed = [] {
    KeepGrpc();
    RouteGrpcLog([](gpr_log_func_args*) { ++lines_written; });
    return true;
  }();
}

std::string Http2Frame(char kind, char flags, char stream,
                       const std::string& payload) {
  return std::string{0,    0,     static_cast<char>(payload.size()),
                     kind, flags, 0,
                     0,    0,     stream} +
         payload;
}

FileDescriptor ConnectToPort(int port) {
  const auto target = Resolve({"127.0.0.1", static_cast<uint16_t>(port), ""});
  FileDescriptor fd(socket(target->front().family(), SOCK_STREAM, 0));
  EXPECT_EQ(connect(fd.get(), target->front().get(), target->front().size), 0);
  return fd;
}

// Streams without a path become no calls, and nobody counted them: a flood of
// them was not cut off.
TEST(DebugLines, TellOfStreamsThatBecomeNoCalls) {
  CountLines();
  std::atomic<int> made = 0;
  auto lines = std::make_unique<DebugLines>([&] { ++made; });
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  grpc::CallbackGenericService service;
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  FileDescriptor client = ConnectToPort(port);
  constexpr char kSettingsFrame = 4;
  constexpr char kHeadersFrame = 1;
  constexpr char kEndHeaders = 4;
  constexpr int kStreams = 50;
  std::string bytes =
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Http2Frame(kSettingsFrame, 0, 0, "");
  for (int i = 0; i < kStreams; ++i) {
    const auto stream = static_cast<char>(2 * i + 1);
    bytes += Http2Frame(kHeadersFrame, kEndHeaders, stream,
                        "\x83");  // :method: POST
  }
  EXPECT_EQ(write(client.get(), bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  EXPECT_TRUE(testing::Eventually([&] { return made >= kStreams; }));
  lines.reset();
  const int before = made;
  gpr_log(GPR_DEBUG, "one more");
  EXPECT_EQ(made, before);
  client.Close();
  server->Shutdown();
}

TEST(RouteGrpcLog, WritesWhatIsAskedFor) {
  CountLines();
  const int before = lines_written;
  gpr_log(GPR_DEBUG, "not asked for");
  gpr_log(GPR_INFO, "not asked for");
  EXPECT_EQ(lines_written, before);
  gpr_log(GPR_ERROR, "asked for");
  EXPECT_EQ(lines_written, before + 1);
}

TEST(BoundReadsOfGrpc, KeepsWhatElseIsAskedFor) {
  constexpr char kName[] = "GRPC_EXPERIMENTS";
  unsetenv(kName);
  BoundReadsOfGrpc();
  EXPECT_STREQ(std::getenv(kName), "-tcp_read_chunks");
  setenv(kName, "tcp_rcv_lowat", 1);
  BoundReadsOfGrpc();
  EXPECT_STREQ(std::getenv(kName), "tcp_rcv_lowat,-tcp_read_chunks");
  unsetenv(kName);
}

}  // namespace
}  // namespace kvcompress
