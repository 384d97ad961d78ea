// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the service reports about its calls, for telemetry. The service itself
// knows neither Prometheus nor a logger.
//
// Implementations are thread safe and do not block. No argument ever carries
// text chosen by a peer, so every one may become a label: all but the names of
// a call, which are for logs and pages.

#ifndef KVCOMPRESS_SERVER_OBSERVER_H_
#define KVCOMPRESS_SERVER_OBSERVER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/warning.h"

namespace kvcompress {

// In the order of their definition in kvcompress.v1.CompressionService.
enum class Method : uint8_t {
  kCompress,
  kDecompress,
  kMeasure,
  kCompressFile,
  kDecompressFile,
  kGetServerInfo,
  kSelfTest,
};
inline constexpr int kMethodCount = 7;

// "Compress", ...
absl::string_view MethodName(Method method);
// As Prometheus names it: "unary", "client_stream", "server_stream" or
// "bidi_stream".
absl::string_view MethodType(Method method);

// By which logs know a call. Safe to write anywhere as they are: what a client
// chose is taken only in these forms.
struct CallNames {
  // 1 to 64 letters, digits, `-`, `_` and `.`: the client's `x-request-id`, or
  // 32 random hexadecimal digits.
  std::string request_id;
  // The client's `traceparent`, as W3C Trace Context has it; or empty.
  std::string traceparent;
};

// Where the time of a stream goes.
enum class Stage : uint8_t { kEncode, kDecode };

// How a call ended.
struct CallEnd {
  Method method;
  absl::StatusCode code;
  double seconds = 0;  // from its start
  // Why it failed: the reason of an ErrorDetail; empty for OK, and for a call
  // that never reached an end.
  std::string reason;
  CallNames names;
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;

  virtual void CallStarted(Method) {}
  // Once for each CallStarted.
  virtual void CallHandled(const CallEnd&) {}

  // Bytes of the request messages and of the response messages of streams, as
  // serialized; of shared-directory transfers, bytes read and written.
  virtual void BytesReceived(Method, uint64_t) {}
  virtual void BytesSent(Method, uint64_t) {}

  // Bytes of memory reserved by streams; deltas add up to 0 over a call.
  virtual void InFlightBytes(int64_t /*delta*/) {}

  // The report of a finished Compress or Measure. `codec` in it is from the
  // registry, tensor names are not for labels.
  virtual void Compressed(const CompressReport&) {}

  // An artefact was made with `codec`, as in the report: how many bytes fewer
  // than the cache's tensors it has, 0 where it has more.
  virtual void Saved(absl::string_view /*codec*/, uint64_t /*bytes*/) {}

  // The report of a finished Decompress.
  virtual void Decompressed(const DecompressReport&) {}

  // A warning of the report of a Compress or Measure. Its tensor is not for
  // labels or logs.
  virtual void Warned(const CallNames&, const Warning&) {}

  // Seconds one call spent in a stage; `codec` is a name of the registry.
  virtual void CodecTime(absl::string_view /*codec*/, Stage, double) {}

  // An artefact failed a check. `reason` is one of kIntegrityReasons.
  virtual void IntegrityFailure(absl::string_view /*reason*/) {}
};

// Reasons of DATA_LOSS errors (ErrorDetail::reason).
inline constexpr absl::string_view kIntegrityReasons[] = {
    "HEADER_DAMAGED",    // the header breaks a rule or its checksum
    "PAYLOAD_DAMAGED",   // a payload breaks a rule or its digest
    "TRUNCATED",         // the artefact ended early
    "TRAILING_BYTES",    // bytes follow the artefact's end
    "IDENTITY_MISMATCH"  // not the labels or the digest expected
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_OBSERVER_H_
