// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "read_file.h"

namespace kvcompress {
namespace {

// Far above any chain or bundle of authorities.
constexpr size_t kLargestFile = 4 << 20;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

absl::Status Unfit(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", why));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  return ReadRegularFile(path, kLargestFile);
}

Bio Over(const std::string& bytes) {
  return Bio(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())),
             &BIO_free);
}

// A key that needs a passphrase is not asked for one.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::StatusOr<absl::Time> ToTime(const ASN1_TIME* time) {
  std::tm fields = {};
  if (ASN1_TIME_to_tm(time, &fields) != 1) {
    return absl::InvalidArgumentError("not a time");
  }
  return absl::FromTM(fields, absl::UTCTimeZone());
}

// Every certificate of the file, so that a damaged one is found now and not in
// a handshake. Returns the first.
absl::StatusOr<Certificate> ParseChain(const std::string& path,
                                       const std::string& bytes) {
  ERR_clear_error();
  const Bio bio = Over(bytes);
  Certificate first(nullptr, &X509_free);
  while (true) {
    Certificate next(
        PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr),
        &X509_free);
    if (next == nullptr) break;
    if (first == nullptr) first = std::move(next);
  }
  const auto error = ERR_peek_last_error();
  ERR_clear_error();
  if (first == nullptr) return Unfit(path, "no certificate in PEM");
  if (ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return Unfit(path, "contains a damaged certificate");
  }
  return first;
}

absl::Status CheckKey(const TlsFiles& files, const std::string& bytes,
                      X509* certificate) {
  const Bio bio = Over(bytes);
  const Key key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr),
      &EVP_PKEY_free);
  absl::Status status;
  if (key == nullptr) {
    status = Unfit(files.key, "no unencrypted private key in PEM");
  } else if (X509_check_private_key(certificate, key.get()) != 1) {
    status = Unfit(files.key, absl::StrCat("not the key of the certificate in ",
                                           files.certificate));
  }
  ERR_clear_error();
  return status;
}

absl::Status CheckTime(const std::string& path, const X509* certificate,
                       absl::Time now, absl::Time* expiry) {
  const absl::StatusOr<absl::Time> begin =
      ToTime(X509_get0_notBefore(certificate));
  const absl::StatusOr<absl::Time> end =
      ToTime(X509_get0_notAfter(certificate));
  if (!begin.ok() || !end.ok()) return Unfit(path, "no valid dates");
  const auto show = [](absl::Time time) {
    return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
  };
  if (now < *begin) {
    return Unfit(path, absl::StrCat("not valid before ", show(*begin)));
  }
  if (now > *end) return Unfit(path, absl::StrCat("expired on ", show(*end)));
  *expiry = *end;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Certificates> ReadCertificates(const TlsFiles& files,
                                              absl::Time now) {
  Certificates result;
  absl::StatusOr<std::string> bytes = ReadFile(files.certificate);
  if (!bytes.ok()) return bytes.status();
  result.certificate = *std::move(bytes);
  const absl::StatusOr<Certificate> own =
      ParseChain(files.certificate, result.certificate);
  if (!own.ok()) return own.status();

  bytes = ReadFile(files.key);
  if (!bytes.ok()) return bytes.status();
  result.key = *std::move(bytes);
  absl::Status status = CheckKey(files, result.key, own->get());
  if (!status.ok()) return status;
  status = CheckTime(files.certificate, own->get(), now, &result.expiry);
  if (!status.ok()) return status;

  if (!files.client_ca.empty()) {
    bytes = ReadFile(files.client_ca);
    if (!bytes.ok()) return bytes.status();
    result.client_ca = *std::move(bytes);
    status = ParseChain(files.client_ca, result.client_ca).status();
    if (!status.ok()) return status;
  }
  return result;
}

absl::StatusOr<std::unique_ptr<CertificateWatcher>> CertificateWatcher::Start(
    const TlsFiles& files, absl::Duration interval, CertificateEvents events) {
  absl::StatusOr<Certificates> first = ReadCertificates(files, absl::Now());
  if (!first.ok()) return first.status();
  return std::unique_ptr<CertificateWatcher>(new CertificateWatcher(
      files, interval, std::move(events), *std::move(first)));
}

CertificateWatcher::CertificateWatcher(const TlsFiles& files,
                                       absl::Duration interval,
                                       CertificateEvents events,
                                       Certificates first)
    : files_(files),
      events_(std::move(events)),
      current_(std::make_shared<const Certificates>(std::move(first))) {
  events_.changed(*current_);
  watch_.emplace(interval, [this] { Look(); });
}

std::shared_ptr<const Certificates> CertificateWatcher::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void CertificateWatcher::Look() {
  absl::StatusOr<Certificates> read = ReadCertificates(files_, absl::Now());
  if (!read.ok()) {
    const std::string complaint(read.status().message());
    if (complaint == complaint_) return;
    complaint_ = complaint;
    spdlog::error("TLS: {}; keeping the certificate in use", complaint);
    events_.failed();
    return;
  }
  complaint_.clear();
  if (*read == *current()) return;
  spdlog::info(
      "TLS: loaded the changed files; the certificate expires at {}",
      absl::FormatTime(absl::RFC3339_sec, read->expiry, absl::UTCTimeZone()));
  auto next = std::make_shared<const Certificates>(*std::move(read));
  events_.changed(*next);
  const std::lock_guard lock(mutex_);
  current_ = std::move(next);
}

}  // namespace kvcompress
