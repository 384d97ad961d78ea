// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/service_connection.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "client/cli/train.h"
#include "client/cpp/status.h"
#include "kvcompress/error.h"
#include "kvcompress/file_source.h"

namespace kvcompress::cli {

namespace {

constexpr size_t kMaxPem = 1 << 20;

absl::Status ReadPem(const std::string& path, std::string* pem) {
  if (path.empty()) return absl::OkStatus();
  const auto unfit = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be read, or is empty", why));
  };
  const auto file = FileSource::Open(path);
  if (!file.ok()) return unfit("");
  char buffer[4096];
  while (true) {
    const absl::StatusOr<size_t> size = (*file)->Read(absl::MakeSpan(buffer));
    if (!size.ok()) return unfit(absl::StrCat(": ", size.status().message()));
    if (*size == 0) break;
    pem->append(buffer, *size);
    if (pem->size() > kMaxPem) return unfit(": it is too long");
  }
  return pem->empty() ? unfit("") : absl::OkStatus();
}

absl::StatusOr<std::optional<ClientTls>> ReadTls(const Flags& flags) {
  if (flags.tls_ca.empty()) return std::nullopt;
  ClientTls tls;
  absl::Status status = ReadPem(flags.tls_ca, &tls.root_certificates);
  status.Update(ReadPem(flags.tls_cert, &tls.certificate_chain));
  status.Update(ReadPem(flags.tls_key, &tls.private_key));
  if (!status.ok()) return status;
  return tls;
}

}  // namespace

void LogServer(const v1::GetServerInfoResponse& info) {
  absl::FPrintF(stderr, "service: version %s, format %d, kernels %s\n",
                Printable(info.version()), info.format_version(),
                Printable(info.kernels()));
}

absl::StatusOr<ServiceConnection> ServiceConnection::Open(const Flags& flags,
                                                          bool own_connection) {
  ServiceConnection connection;
  connection.address_ = flags.server;
  if (!flags.server.empty()) {
    absl::StatusOr<std::optional<ClientTls>> tls = ReadTls(flags);
    if (!tls.ok()) return tls.status();
    connection.profile_ = flags.profile;
    connection.client_ = std::make_unique<Client>(
        flags.server, ClientOptions{.tls = *std::move(tls),
                                    .shared_directory = flags.shared_directory,
                                    .own_connection = own_connection});
    return connection;
  }
  std::shared_ptr<const Profile> profile;
  if (!flags.profile.empty()) {
    absl::StatusOr<std::shared_ptr<const Profile>> read =
        ReadProfile(flags.profile);
    if (!read.ok()) return read.status();
    profile = *std::move(read);
    connection.profile_ = profile->id().digest;
  }
  absl::StatusOr<std::unique_ptr<EmbeddedServer>> server =
      EmbeddedServer::Start(std::move(profile),
                            static_cast<unsigned>(flags.threads));
  if (!server.ok()) return server.status();
  connection.embedded_ = *std::move(server);
  connection.client_ = std::make_unique<Client>(
      connection.embedded_->channel(), ClientOptions{.shared_directory = "/"});
  return connection;
}

absl::Status ServiceConnection::Explain(const absl::Status& status) const {
  const bool unreachable =
      absl::IsUnavailable(status) || absl::IsUnimplemented(status);
  if (address_.empty() || !unreachable || GetErrorDetail(status)) return status;
  return Annotate(
      status,
      absl::StrCat("server ", address_, ": ",
                   status.message().empty() ? "no such service there" : ""));
}

absl::StatusOr<const ServiceConnection*> LazyConnection::Get() {
  if (connection_) return &*connection_;
  absl::StatusOr<ServiceConnection> opened = ServiceConnection::Open(flags_);
  if (!opened.ok()) return opened.status();
  if (flags_.verbose && !flags_.quiet) {
    const absl::StatusOr<v1::GetServerInfoResponse> info =
        opened->client().GetServerInfo();
    if (!info.ok()) return opened->Explain(info.status());
    LogServer(*info);
  }
  connection_ = *std::move(opened);
  return &*connection_;
}

}  // namespace kvcompress::cli
