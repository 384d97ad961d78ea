// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// One log line for each finished call: method, code, reason, seconds, and the
// names of the call; nothing else that a peer has chosen.
//
// Levels: debug for OK, info for what is the client's doing (bad input, a
// cancelled call), warn for what an operator should look into: damaged
// artefacts, refusals for the server's sake, and defects.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_
#define KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_

#include "observer.h"

namespace kvcompress {

class CallLog final : public CallObserver {
 public:
  void CallHandled(const CallEnd& end) override;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_CALL_LOG_H_
