// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <mutex>
#include <string>
#include <vector>

namespace kvcompress {
namespace {

// What one listening port has been given last. gRPC keeps a copy per port, and
// asks one at a time.
struct Port {
  const CertificateWatcher* watcher;
  std::shared_ptr<const Certificates> given;
};

grpc_ssl_certificate_config_reload_status Fetch(
    void* user_data, grpc_ssl_server_certificate_config** config) {
  Port& port = *static_cast<Port*>(user_data);
  std::shared_ptr<const Certificates> current = port.watcher->current();
  if (current == port.given) {
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  }
  const grpc_ssl_pem_key_cert_pair pair = {current->key.c_str(),
                                           current->certificate.c_str()};
  // gRPC 1.51 insists on some. Where clients are not asked for a certificate
  // they have no effect.
  const std::string& roots = port.watcher->files().client_ca.empty()
                                 ? current->certificate
                                 : current->client_ca;
  *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
  port.given = std::move(current);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

class Credentials final : public grpc::ServerCredentials {
 public:
  explicit Credentials(const CertificateWatcher* watcher) : watcher_(watcher) {}

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    ports_.push_back(std::make_unique<Port>(Port{watcher_, nullptr}));
    grpc_server_credentials* credentials =
        grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                watcher_->files().client_ca.empty()
                    ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
                &Fetch, ports_.back().get()));
    const int bound =
        grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);
    return bound;
  }

  const CertificateWatcher* const watcher_;
  std::vector<std::unique_ptr<Port>> ports_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ReloadingCredentials(
    const CertificateWatcher* watcher) {
  return std::make_shared<Credentials>(watcher);
}

}  // namespace kvcompress
