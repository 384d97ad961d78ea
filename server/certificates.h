// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a server shows and trusts in a TLS handshake: read from PEM files,
// judged, and read again when the files change.

#ifndef KVCOMPRESS_SERVER_CERTIFICATES_H_
#define KVCOMPRESS_SERVER_CERTIFICATES_H_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "periodic.h"

namespace kvcompress {

// Paths of PEM files.
struct TlsFiles {
  std::string certificate;  // the server's, then intermediate ones
  std::string key;
  std::string client_ca;  // empty: clients need no certificate

  bool enabled() const { return !certificate.empty(); }
};

// What the files hold, as it was judged fit to serve with.
struct Certificates {
  std::string certificate;
  std::string key;
  std::string client_ca;
  absl::Time expiry;  // of the server's own certificate

  friend bool operator==(const Certificates&, const Certificates&) = default;
};

// Reads and judges. FAILED_PRECONDITION, naming the file, when one cannot be
// read or holds no PEM, when the key is not that of the certificate, or when
// the certificate's time has not come or is over.
absl::StatusOr<Certificates> ReadCertificates(const TlsFiles& files,
                                              absl::Time now);

// Told by a watcher; the calls come one at a time.
struct CertificateEvents {
  // The certificates in use, at the start and after every change.
  std::function<void(const Certificates&)> changed;
  // The files are not fit. Once for each reason in a row.
  std::function<void()> failed;
};

// Follows files that are replaced while a server runs. Files that are not fit
// are said so in the log, once, and change nothing: the last good ones stay.
// Thread safe.
class CertificateWatcher {
 public:
  // As ReadCertificates; then looks at the files every `interval`.
  static absl::StatusOr<std::unique_ptr<CertificateWatcher>> Start(
      const TlsFiles& files, absl::Duration interval, CertificateEvents events);

  CertificateWatcher(const CertificateWatcher&) = delete;
  CertificateWatcher& operator=(const CertificateWatcher&) = delete;

  // The good ones, never null; another pointer after every change.
  std::shared_ptr<const Certificates> current() const;

  const TlsFiles& files() const { return files_; }

 private:
  CertificateWatcher(const TlsFiles& files, absl::Duration interval,
                     CertificateEvents events, Certificates first);

  void Look();

  const TlsFiles files_;
  const CertificateEvents events_;
  std::string complaint_;  // the last one; for the watching thread alone
  mutable std::mutex mutex_;
  std::shared_ptr<const Certificates> current_;  // guarded by the mutex
  std::optional<Periodic> watch_;                // last: it uses the others
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CERTIFICATES_H_
