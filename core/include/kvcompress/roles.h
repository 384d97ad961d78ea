// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which tensors of a cache hold keys, and which hold values: core/FORMAT.md,
// "Roles".

#ifndef KVCOMPRESS_ROLES_H_
#define KVCOMPRESS_ROLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/patterns.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// Shell patterns that assign roles to tensors, within the limits of
// kvcompress/patterns.h for each list. They go before what a name says, and
// after what a TensorSpec declares.
struct RolePatterns {
  std::vector<std::string> keys;
  std::vector<std::string> values;
};

// How many tensors hold what.
struct RoleCounts {
  uint64_t keys = 0;
  uint64_t values = 0;
  uint64_t neither = 0;

  void Add(TensorRole role);
};

// INVALID_ARGUMENT for lists that are longer than kMaxPatterns or
// kMaxPatternBytes.
absl::Status ValidateRolePatterns(const RolePatterns& patterns);

// Sets role and layer of tensors, each only where it is not set.
// INVALID_ARGUMENT as ValidateRolePatterns, for more than kMaxPatternWork, with
// reason ROLE_PATTERN_MATCHES_NOTHING for a pattern that matches none of the
// tensors, unless there is none, and with ROLE_PATTERNS_CONFLICT for a tensor
// that patterns of both lists match. The error of the checkpoint where it
// stops.
absl::Status AssignRoles(const RolePatterns& patterns,
                         absl::Span<TensorSpec* const> tensors,
                         Checkpoint* checkpoint = nullptr);

// "key", "value", or nothing.
absl::string_view RoleName(TensorRole role);

}  // namespace kvcompress

#endif  // KVCOMPRESS_ROLES_H_
