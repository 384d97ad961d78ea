// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the calls of one service share. Thread safe; outlives them.

#ifndef KVCOMPRESS_SERVER_SERVICE_STATE_H_
#define KVCOMPRESS_SERVER_SERVICE_STATE_H_

#include <algorithm>

#include "admission.h"
#include "observer.h"
#include "service.h"
#include "small_call.h"
#include "watchdog.h"
#include "worker_pool.h"

namespace kvcompress {

struct ServiceState {
  ServiceState(const ServiceOptions& service_options,
               CallObserver* call_observer)
      : options(service_options),
        observer(call_observer != nullptr ? call_observer : &silent),
        budget(options.memory_budget_bytes, options.client_budget_percent),
        watchdog({.stall = options.time.stall,
                  .call = options.time.call,
                  .trims = true}),
        small_calls({.stall = std::min(options.time.stall, kSmallRequestTime),
                     .call = options.time.call,
                     .most = kMaxSmallCalls}),
        workers(
            WorkerPool::Processors(),
            {.most = std::max(WorkerPool::Processors(), options.call_threads),
             .nicer = options.helpers_nicer}) {}

  const ServiceOptions options;
  CallObserver silent;
  CallObserver* const observer;
  MemoryBudget budget;
  Watchdog watchdog;
  // Of calls that take one small request.
  Watchdog small_calls;
  // For everything that reads or writes values.
  WorkerPool workers;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_SERVICE_STATE_H_
