// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The client of kvcompress.v1.CompressionService.
//
//   kvcompress::Client client("localhost:50051");
//   auto source = kvcompress::FileSource::Open("cache.safetensors");
//   auto output = kvcompress::OutputFile::Create(
//       "cache.kvc.safetensors", {.inputs = {(*source)->identity()}});
//   auto report = client.Compress({}, source->get(), output->get());
//   if (report.ok()) absl::Status published = (*output)->Commit();
//
// Options and reports are the messages of the API. Every error of the server
// comes back with its code and message, and with the ErrorDetail that
// GetErrorDetail (kvcompress/error.h) finds: reason, tensor, offset, limit.

#ifndef KVCOMPRESS_CLIENT_H_
#define KVCOMPRESS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
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
  // For mutual TLS, else empty: the client's certificate with its intermediate
  // certificates, and its key.
  std::string certificate_chain;
  std::string private_key;
};

struct ClientOptions {
  // TLS; plain text when not set. The server's certificate must name the host
  // of the target.
  std::optional<ClientTls> tls;
  // Longest time one call may take; then it fails with DEADLINE_EXCEEDED.
  absl::Duration timeout = absl::InfiniteDuration();
  // Where this process sees the directory that the server shares, such as the
  // mount of a volume of both containers; empty: where the server sees it.
  std::string shared_directory;
  // A connection that no other client of the process uses. Otherwise gRPC
  // shares one among clients of the same target.
  bool own_connection = false;
};

// The result of a shared-directory transfer; nothing when the bytes have to be
// sent instead.
template <typename Report>
using SharedResult = absl::StatusOr<std::optional<Report>>;

// Thread safe. Input is sent in chunks of 1 MiB while output is received, so
// memory does not grow with the cache. The last channel of a process that goes
// takes gRPC 1.51 down, which can wait for up to 10 seconds (grpc/grpc issue
// 41050): a program that minds calls grpc_init() once and never takes it back.
class Client {
 public:
  // `target` is "HOST:PORT", "[IPV6]:PORT", "unix:PATH" or another name that
  // gRPC knows. The connection is made by the first call. It goes through the
  // proxy that `http_proxy` names, but for Unix sockets, loopback addresses and
  // the hosts of `no_proxy`. Calls fail with INVALID_ARGUMENT, reason
  // INVALID_ADDRESS, for a port above 65,535 and for a path of a socket that is
  // longer than 107 bytes or has a comma.
  explicit Client(const std::string& target, const ClientOptions& options = {});
  // Over a channel that exists; `options.tls` has no effect. Files are named
  // only with a `shared_directory`.
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

  // From file to file, by their names, where the target is a Unix socket and
  // both lie in the directory that the server shares: then no byte is sent, and
  // `output`, replaced if it is there unless `overwrite` is false, appears
  // whole or not at all. Else nothing is done, and nothing is given back: call
  // Compress. INVALID_ARGUMENT with the reason SAME_FILE when both are one
  // file.
  //
  // Calls `progress` with bytes of the input as they are read.
  SharedResult<v1::CompressionReport> CompressShared(
      const v1::CompressOptions& options, const std::string& input,
      const std::string& output, absl::FunctionRef<void(uint64_t)> progress,
      bool overwrite = true) const;

  // The same for Decompress; `output` is empty with `verify_only`.
  SharedResult<v1::DecompressionReport> DecompressShared(
      const v1::DecompressOptions& options, const std::string& input,
      const std::string& output, absl::FunctionRef<void(uint64_t)> progress,
      bool overwrite = true) const;

  // The report of Compress, without the artefact.
  absl::StatusOr<v1::CompressionReport> Measure(
      const v1::CompressOptions& options, ByteSource* safetensors) const;

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo() const;

  // `codec` alone, or all when empty.
  absl::StatusOr<v1::SelfTestResponse> SelfTest(
      const std::string& codec = "") const;

 private:
  // The error of the target, if it has one.
  absl::Status Prepare(grpc::ClientContext* context) const;
  // Names the files in `request`; false when they cannot be.
  template <typename Request>
  absl::StatusOr<bool> NameFiles(const std::string& input,
                                 const std::string& output, bool overwrite,
                                 Request* request) const;
  // The shared directory, which the server is asked for once.
  std::optional<std::string> SharedRoot() const;

  const ClientOptions options_;
  const absl::Status target_;
  const bool may_share_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::CompressionService::Stub> stub_;
  mutable std::mutex mutex_;
  // Guarded by the mutex.
  mutable bool asked_ = false;
  mutable std::optional<std::string> shared_root_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_H_
