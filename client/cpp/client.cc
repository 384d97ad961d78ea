// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <utility>

#include "client/cpp/receivers.h"
#include "client/cpp/status.h"
#include "client/cpp/transfer.h"

namespace kvcompress {
namespace {

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(
    const std::optional<ClientTls>& tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = tls->root_certificates,
                               .pem_private_key = tls->private_key,
                               .pem_cert_chain = tls->certificate_chain});
}

std::shared_ptr<grpc::Channel> Connect(const std::string& target,
                                       const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetMaxSendMessageSize(-1);
  // Notices a peer that is gone. Any server tolerates a ping every five
  // minutes.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 6 * 60 * 1000);
  return grpc::CreateCustomChannel(target, CredentialsOf(options.tls),
                                   arguments);
}

}  // namespace

Client::Client(const std::string& target, const ClientOptions& options)
    : Client(Connect(target, options), options) {}

Client::Client(std::shared_ptr<grpc::Channel> channel,
               const ClientOptions& options)
    : options_(options),
      stub_(v1::CompressionService::NewStub(std::move(channel))) {}

void Client::Prepare(grpc::ClientContext* context) const {
  if (options_.timeout == absl::InfiniteDuration()) return;
  context->set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
}

absl::StatusOr<v1::CompressionReport> Client::Compress(
    const v1::CompressOptions& options, ByteSource* safetensors,
    ByteSink* artefact, ByteSink* reconstructed) const {
  grpc::ClientContext context;
  Prepare(&context);
  v1::CompressRequest first;
  *first.mutable_options() = options;
  CompressReceiver receiver(artefact, reconstructed);
  absl::Status status = Transfer<v1::CompressRequest, v1::CompressResponse>(
      &context, stub_->Compress(&context).get(), first, safetensors,
      [](v1::CompressRequest* request) {
        return request->mutable_safetensors();
      },
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
  Prepare(&context);
  v1::DecompressRequest first;
  *first.mutable_options() = options;
  DecompressReceiver receiver(safetensors);
  absl::Status status = Transfer<v1::DecompressRequest, v1::DecompressResponse>(
      &context, stub_->Decompress(&context).get(), first, artefact,
      [](v1::DecompressRequest* request) {
        return request->mutable_artefact();
      },
      [&](const v1::DecompressResponse& response) {
        return receiver.Receive(response);
      });
  if (!status.ok()) return status;
  return receiver.Finish();
}

absl::StatusOr<v1::CompressionReport> Client::Measure(
    const v1::CompressOptions& options, ByteSource* safetensors) const {
  grpc::ClientContext context;
  Prepare(&context);
  v1::MeasureRequest first;
  *first.mutable_options() = options;
  v1::MeasureResponse response;
  const auto stream = stub_->Measure(&context, &response);
  const SendResult sent = SendAll<v1::MeasureRequest>(
      first, safetensors,
      [](v1::MeasureRequest* request) {
        return request->mutable_safetensors();
      },
      stream.get());
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
  Prepare(&context);
  v1::GetServerInfoResponse response;
  const grpc::Status status = stub_->GetServerInfo(&context, {}, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::StatusOr<v1::SelfTestResponse> Client::SelfTest(
    const std::string& codec) const {
  grpc::ClientContext context;
  Prepare(&context);
  v1::SelfTestRequest request;
  request.set_codec(codec);
  v1::SelfTestResponse response;
  const grpc::Status status = stub_->SelfTest(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

}  // namespace kvcompress
