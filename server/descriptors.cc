// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "descriptors.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kvcompress {
namespace {

constexpr uint64_t kFewest = 128;
constexpr uint64_t kBase = 64;

uint64_t HttpShare(uint64_t descriptors) {
  return std::min<uint64_t>(descriptors / 8, kMaxHttpConnections);
}

// What is left for connections of gRPC.
uint64_t ConnectionShare(uint64_t descriptors) {
  return (descriptors - kBase - HttpShare(descriptors)) / 4 * 3;
}

}  // namespace

uint64_t RaiseDescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

absl::StatusOr<ConnectionLimits> PlanConnections(uint64_t descriptors,
                                                 std::optional<int> total,
                                                 std::optional<int> per_host) {
  if (descriptors < kFewest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the limit of file descriptors is ", descriptors, ", and at least ",
        kFewest, " are needed: raise it (ulimit -n, LimitNOFILE)"));
  }
  const uint64_t available = ConnectionShare(descriptors);
  if (total && static_cast<uint64_t>(*total) > available) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-connections is ", *total, ", but the limit of ", descriptors,
        " file descriptors leaves ", available,
        " for connections: lower the flag or raise the limit (ulimit -n, "
        "LimitNOFILE)"));
  }
  ConnectionLimits limits;
  limits.total = total.value_or(
      static_cast<int>(std::min<uint64_t>(available, kDefaultMaxConnections)));
  limits.per_host =
      std::min(per_host.value_or(std::max(limits.total / 2, 1)), limits.total);
  limits.http = static_cast<int>(HttpShare(descriptors));
  return limits;
}

}  // namespace kvcompress
