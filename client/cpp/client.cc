// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "client/cpp/receivers.h"
#include "client/cpp/shared_files.h"
#include "client/cpp/status.h"
#include "client/cpp/target.h"
#include "client/cpp/transfer.h"
#include "kvcompress/file_identity.h"
#include "kvcompress/output_file.h"

namespace kvcompress {
namespace {

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(
    const std::optional<ClientTls>& tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = tls->root_certificates,
                               .pem_private_key = tls->private_key,
                               .pem_cert_chain = tls->certificate_chain});
}

// What gRPC itself reads to find out which hosts need no proxy.
std::string NoProxy() {
  // NOLINTBEGIN(concurrency-mt-unsafe): nobody changes the environment.
  const char* list = std::getenv("no_grpc_proxy");
  if (list == nullptr || *list == '\0') list = std::getenv("no_proxy");
  // NOLINTEND(concurrency-mt-unsafe)
  return list == nullptr ? "" : list;
}

// Without a target a channel whose calls fail.
std::shared_ptr<grpc::Channel> Connect(const absl::StatusOr<Target>& target,
                                       const ClientOptions& options) {
  if (!target.ok()) return grpc::CreateChannel("", nullptr);
  grpc::ChannelArguments arguments;
  if (IsDirect(*target, NoProxy())) {
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  }
  if (options.own_connection) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  }
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetMaxSendMessageSize(-1);
  // Notices a peer that is gone. Any server tolerates a ping every five
  // minutes.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 6 * 60 * 1000);
  return grpc::CreateCustomChannel(target->name, CredentialsOf(options.tls),
                                   arguments);
}

constexpr char kCompress[] = "/kvcompress.v1.CompressionService/Compress";
constexpr char kDecompress[] = "/kvcompress.v1.CompressionService/Decompress";
constexpr char kMeasure[] = "/kvcompress.v1.CompressionService/Measure";

// As the generated stub does it, but requests are given as they are on the
// wire.
template <typename Response>
std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, Response>>
OpenStream(grpc::Channel* channel, const char* method,
           grpc::ClientContext* context) {
  return std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, Response>>(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, Response>::
          Create(channel,
                 grpc::internal::RpcMethod(
                     method, grpc::internal::RpcMethod::BIDI_STREAMING),
                 context));
}

}  // namespace

Client::Client(const std::string& target, const ClientOptions& options)
    : options_(options),
      target_(ParseTarget(target).status()),
      may_share_(absl::StartsWith(target, "unix:")),
      channel_(Connect(ParseTarget(target), options)),
      stub_(v1::CompressionService::NewStub(channel_)) {}

Client::Client(std::shared_ptr<grpc::Channel> channel,
               const ClientOptions& options)
    : options_(options),
      may_share_(!options.shared_directory.empty()),
      channel_(std::move(channel)),
      stub_(v1::CompressionService::NewStub(channel_)) {}

absl::Status Client::Prepare(grpc::ClientContext* context) const {
  if (options_.timeout != absl::InfiniteDuration()) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
  }
  return target_;
}

absl::StatusOr<v1::CompressionReport> Client::Compress(
    const v1::CompressOptions& options, ByteSource* safetensors,
    ByteSink* artefact, ByteSink* reconstructed) const {
  grpc::ClientContext context;
  if (absl::Status status = Prepare(&context); !status.ok()) return status;
  v1::CompressRequest first;
  *first.mutable_options() = options;
  CompressReceiver receiver(artefact, reconstructed);
  absl::Status status = Transfer<v1::CompressResponse>(
      &context,
      OpenStream<v1::CompressResponse>(channel_.get(), kCompress, &context)
          .get(),
      Serialize(first), safetensors,
      v1::CompressRequest::kSafetensorsFieldNumber,
      [&](const v1::CompressResponse& response) {
        return receiver.Receive(response);
      });
  if (!status.ok()) return status;
  return receiver.Finish();
}

absl::StatusOr<v1::DecompressionReport> Client::Decompress(
    const v1::DecompressOptions& options, ByteSource* artefact,
    ByteSink* safetensors) const {
  grpc::ClientContext context;
  if (absl::Status status = Prepare(&context); !status.ok()) return status;
  v1::DecompressRequest first;
  *first.mutable_options() = options;
  DecompressReceiver receiver(safetensors);
  absl::Status status = Transfer<v1::DecompressResponse>(
      &context,
      OpenStream<v1::DecompressResponse>(channel_.get(), kDecompress, &context)
          .get(),
      Serialize(first), artefact, v1::DecompressRequest::kArtefactFieldNumber,
      [&](const v1::DecompressResponse& response) {
        return receiver.Receive(response);
      });
  if (!status.ok()) return status;
  return receiver.Finish();
}

std::optional<std::string> Client::SharedRoot() const {
  if (!may_share_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (asked_) return shared_root_;
  const absl::StatusOr<v1::GetServerInfoResponse> info = GetServerInfo();
  if (!info.ok()) return std::nullopt;
  asked_ = true;
  if (info->has_shared_directory()) {
    shared_root_ =
        FindShared(info->shared_directory(), options_.shared_directory);
  }
  return shared_root_;
}

template <typename Request>
absl::StatusOr<bool> Client::NameFiles(const std::string& input,
                                       const std::string& output,
                                       bool overwrite, Request* request) const {
  const std::optional<FileIdentity> read = IdentityOf(input);
  if (read && read == IdentityOf(output)) return SameFileError(output);
  const std::optional<std::string> root = SharedRoot();
  if (!root) return false;
  const std::optional<std::string> from =
      PathWithin(*root, input, /*must_exist=*/true);
  if (!from) return false;
  request->set_input_path(*from);
  if (output.empty()) return true;
  const std::optional<std::string> to =
      PathWithin(*root, output, /*must_exist=*/false);
  if (!to) return false;
  request->set_output_path(*to);
  request->set_overwrite(overwrite);
  return true;
}

namespace {

// Reads a reply to its trailer.
template <typename Report, typename Response>
SharedResult<Report> ReadReply(grpc::ClientReader<Response>* reader,
                               absl::FunctionRef<void(uint64_t)> progress) {
  std::optional<Report> report;
  Response response;
  uint64_t told = 0;
  while (reader->Read(&response)) {
    if (response.has_trailer()) report = std::move(*response.mutable_trailer());
    const uint64_t read = response.progress().bytes_read();
    if (read > told) progress(read - told);
    told = std::max(told, read);
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  if (!status.ok()) {
    if (MayBeStreamed(status)) return std::nullopt;
    return status;
  }
  if (!report) return absl::InternalError("the server sent no report");
  return report;
}

}  // namespace

SharedResult<v1::CompressionReport> Client::CompressShared(
    const v1::CompressOptions& options, const std::string& input,
    const std::string& output, absl::FunctionRef<void(uint64_t)> progress,
    bool overwrite) const {
  v1::CompressFileRequest request;
  const absl::StatusOr<bool> named =
      NameFiles(input, output, overwrite, &request);
  if (!named.ok()) return named.status();
  if (!*named) return std::nullopt;
  *request.mutable_options() = options;
  grpc::ClientContext context;
  if (absl::Status status = Prepare(&context); !status.ok()) return status;
  return ReadReply<v1::CompressionReport>(
      stub_->CompressFile(&context, request).get(), progress);
}

SharedResult<v1::DecompressionReport> Client::DecompressShared(
    const v1::DecompressOptions& options, const std::string& input,
    const std::string& output, absl::FunctionRef<void(uint64_t)> progress,
    bool overwrite) const {
  v1::DecompressFileRequest request;
  const absl::StatusOr<bool> named =
      NameFiles(input, output, overwrite, &request);
  if (!named.ok()) return named.status();
  if (!*named) return std::nullopt;
  *request.mutable_options() = options;
  grpc::ClientContext context;
  if (absl::Status status = Prepare(&context); !status.ok()) return status;
  return ReadReply<v1::DecompressionReport>(
      stub_->DecompressFile(&context, request).get(), progress);
}

absl::StatusOr<v1::CompressionReport> Client::Measure(
    const v1::CompressOptions& options, ByteSource* safetensors) const {
  grpc::ClientContext context;
  if (absl::Status status = Prepare(&context); !status.ok()) return status;
  v1::MeasureRequest first;
  *first.mutable_options() = options;
  v1::MeasureResponse response;
  const std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>> stream(
      grpc::internal::ClientWriterFactory<grpc::ByteBuffer>::Create(
          channel_.get(),
          grpc::internal::RpcMethod(
              kMeasure, grpc::internal::RpcMethod::CLIENT_STREAMING),
          &context, &response));
  const SendResult sent =
      SendAll(Serialize(first), safetensors,
              v1::MeasureRequest::kSafetensorsFieldNumber, stream.get());
  if (!sent.source.ok()) context.TryCancel();
  absl::Status status = Outcome(stream->Finish(), sent.source, sent);
  if (!status.ok()) return status;
  if (!response.has_report()) {
    return absl::InternalError("the server sent no report");
  }
  return std::move(*response.mutable_report());
}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo() const {
  grpc::ClientContext context;
  if (absl::Status status = Prepare(&context); !status.ok()) return status;
  v1::GetServerInfoResponse response;
  const grpc::Status status = stub_->GetServerInfo(&context, {}, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::StatusOr<v1::SelfTestResponse> Client::SelfTest(
    const std::string& codec) const {
  grpc::ClientContext context;
  if (absl::Status status = Prepare(&context); !status.ok()) return status;
  v1::SelfTestRequest request;
  request.set_codec(codec);
  v1::SelfTestResponse response;
  const grpc::Status status = stub_->SelfTest(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

}  // namespace kvcompress
