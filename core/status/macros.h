// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Passing errors on. Internal to the library.

#ifndef KVCOMPRESS_STATUS_MACROS_H_
#define KVCOMPRESS_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define KVC_RETURN_IF_ERROR(expression)                             \
  do {                                                              \
    if (absl::Status kvc_status = (expression); !kvc_status.ok()) { \
      return kvc_status;                                            \
    }                                                               \
  } while (false)

#define KVC_CONCAT_INNER(a, b) a##b
#define KVC_CONCAT(a, b) KVC_CONCAT_INNER(a, b)
#define KVC_ASSIGN_OR_RETURN(target, expression)                         \
  KVC_ASSIGN_OR_RETURN_IMPL(KVC_CONCAT(kvc_statusor_, __LINE__), target, \
                            expression)
#define KVC_ASSIGN_OR_RETURN_IMPL(statusor, target, expression) \
  auto statusor = (expression);                                 \
  if (!statusor.ok()) return std::move(statusor).status();      \
  target = *std::move(statusor)

#endif  // KVCOMPRESS_STATUS_MACROS_H_
