// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// SIGTERM and SIGINT as events to wait for, with nothing done in a handler. A
// signal that comes while nobody waits is kept.

#ifndef KVCOMPRESS_SERVER_SIGNALS_H_
#define KVCOMPRESS_SERVER_SIGNALS_H_

#include "absl/time/time.h"

namespace kvcompress {

class StopSignals {
 public:
  // Blocks both signals in this thread and those it starts, and ignores
  // SIGPIPE. REQUIRES: no other thread runs yet. Aborts the process when the
  // system has no file descriptors left.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The next signal, SIGTERM or SIGINT; 0 once `deadline` is past or after
  // Wake. For one thread.
  int Wait(absl::Time deadline);

  // Ends this Wait, or the next. Thread safe.
  void Wake();

 private:
  int signals_;  // signalfd
  int wake_;     // eventfd
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_SIGNALS_H_
