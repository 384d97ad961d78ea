// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The client of kvcompress.v1.CompressionService.
//
//   kvcompress::Client client("localhost:50051");
//   auto source = kvcompress::FileSource::Open("cache.safetensors");
//   auto output = kvcompress::OutputFile::Create("cache.kvc.safetensors");
//   auto report = client.Compress({}, source->get(), output->get());
//   if (report.ok()) absl::Status published = (*output)->Commit();
//
// Options and reports are the messages of the API. Every error of the server
// comes back with its code and message, and with the ErrorDetail that
// GetErrorDetail (kvcompress/error.h) finds: reason, tensor, offset, limit.

#ifndef KVCOMPRESS_CLIENT_H_
#define KVCOMPRESS_CLIENT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvcompress/byte_stream.h"
#include "kvcompress/v1/compression_service.grpc.pb.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace kvcompress {

// What a client trusts and shows in a TLS handshake. Contents of PEM files.
struct ClientTls {
  // Authorities, one of which must have signed the server's certificate; those
  // that gRPC trusts when empty.
  std::string root_certificates;
  // For mutual TLS, else empty: the client's certificate, those that vouch for
  // it, and its key.
  std::string certificate_chain;
  std::string private_key;
};

struct ClientOptions {
  // TLS; plain text when not set. The server's certificate must name the host
  // of the target.
  std::optional<ClientTls> tls;
  // Longest time one call may take; then it fails with DEADLINE_EXCEEDED.
  absl::Duration timeout = absl::InfiniteDuration();
};

// Thread safe. Input is sent in chunks of 1 MiB while output is received, so
// memory does not grow with the cache.
class Client {
 public:
  // `target` is a gRPC name such as "HOST:PORT" or "unix:PATH". The connection
  // is made by the first call.
  explicit Client(const std::string& target, const ClientOptions& options = {});
  // Over a channel that exists; `options.tls` has no effect.
  explicit Client(std::shared_ptr<grpc::Channel> channel,
                  const ClientOptions& options = {});

  // Compresses a safetensors file. What `artefact` and `reconstructed` were
  // given is valid only when this returns a report; either may be null, and
  // `reconstructed` gets bytes only when the options ask for them.
  // INTERNAL when the server breaks the protocol: chunks that do not cover the
  // file exactly, another size than the report's, or no report at all.
  absl::StatusOr<v1::CompressionReport> Compress(
      const v1::CompressOptions& options, ByteSource* safetensors,
      ByteSink* artefact, ByteSink* reconstructed = nullptr) const;

  // Restores an artefact, or only verifies it. What `safetensors` was given is
  // valid only when this returns a report; it may be null.
  absl::StatusOr<v1::DecompressionReport> Decompress(
      const v1::DecompressOptions& options, ByteSource* artefact,
      ByteSink* safetensors) const;

  // The report of Compress, without the artefact.
  absl::StatusOr<v1::CompressionReport> Measure(
      const v1::CompressOptions& options, ByteSource* safetensors) const;

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo() const;

  // `codec` alone, or all when empty.
  absl::StatusOr<v1::SelfTestResponse> SelfTest(
      const std::string& codec = "") const;

 private:
  void Prepare(grpc::ClientContext* context) const;

  const ClientOptions options_;
  const std::unique_ptr<v1::CompressionService::Stub> stub_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_H_
