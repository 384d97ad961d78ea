// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tries whether a server can be reached, as far as a client without a
// certificate gets: the connection is accepted and gRPC answers on it.

#ifndef KVCOMPRESS_SERVER_DIAL_H_
#define KVCOMPRESS_SERVER_DIAL_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "address.h"

namespace kvcompress {

enum class DialSecurity : uint8_t {
  kPlain,
  kTls,
  // The server asks for a certificate, which is not shown: its own certificate
  // is answer enough.
  kMutualTls,
};

// Connects to `address`, makes the TLS handshake where there is one (RFC 8446;
// the server's certificate is not judged), sends the preface of HTTP/2 and
// waits for the server's SETTINGS frame (RFC 9113, section 3.4). Then hangs up.
// Takes at most `timeout`, names that must be resolved aside. UNAVAILABLE when
// the connection is refused or closed; DEADLINE_EXCEEDED when there is no
// answer. Thread safe.
absl::Status Dial(const ListenAddress& address, DialSecurity security,
                  absl::Duration timeout);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_DIAL_H_
