// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the service tells about its calls, for telemetry. The service itself
// knows neither Prometheus nor a logger.
//
// Implementations are thread safe and do not block. No argument ever carries
// text chosen by a peer, so every one may become a label.

#ifndef KVCOMPRESS_SERVER_OBSERVER_H_
#define KVCOMPRESS_SERVER_OBSERVER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvcompress/compressor.h"

namespace kvcompress {

enum class Method : uint8_t {
  kCompress,
  kDecompress,
  kMeasure,
  kGetServerInfo,
  kSelfTest,
};
inline constexpr int kMethodCount = 5;

// "Compress", ...
absl::string_view MethodName(Method method);

// Where the time of a stream goes.
enum class Stage : uint8_t { kEncode, kDecode };

class CallObserver {
 public:
  virtual ~CallObserver() = default;

  virtual void CallStarted(Method) {}
  // Once for each CallStarted.
  virtual void CallHandled(Method, absl::StatusCode, double /*seconds*/) {}

  // Bytes of the request messages and of the response messages of streams, as
  // serialized.
  virtual void BytesReceived(Method, uint64_t) {}
  virtual void BytesSent(Method, uint64_t) {}

  // Bytes of memory reserved by streams; deltas add up to 0 over a call.
  virtual void InFlightBytes(int64_t /*delta*/) {}

  // The report of a finished Compress or Measure. `codec` in it is from the
  // registry, tensor names are not for labels.
  virtual void Compressed(const CompressReport&) {}

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
