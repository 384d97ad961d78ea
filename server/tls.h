// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// TLS for a gRPC server whose certificates may change while it runs.
//
// Not gRPC's FileWatcherCertificateProvider: that of 1.51 hands on a key that
// does not belong to the certificate, and drops what worked before. Ours is
// asked at every handshake, and returns what the watcher has judged fit.

#ifndef KVCOMPRESS_SERVER_TLS_H_
#define KVCOMPRESS_SERVER_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "certificates.h"

namespace kvcompress {

// TLS 1.2 and 1.3. Where the watcher has a file of client authorities, a
// client without a certificate of theirs is rejected in the handshake.
// REQUIRES: `watcher` outlives the credentials, and these every server that
// listens with them: gRPC itself does not hold them.
std::shared_ptr<grpc::ServerCredentials> ReloadingCredentials(
    const CertificateWatcher* watcher);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TLS_H_
