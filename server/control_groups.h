// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The control groups that this process is in, version 2 or 1, whose limits the
// kernel enforces: cgroups(7).

#ifndef KVCOMPRESS_SERVER_CONTROL_GROUPS_H_
#define KVCOMPRESS_SERVER_CONTROL_GROUPS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// Visits the directory of the group of a controller, such as `memory`, and of
// each around it; `version` is 2 or 1. `root` is where /proc and /sys are
// looked for.
void ForEachControlGroup(
    const std::string& root, absl::string_view controller,
    absl::FunctionRef<void(const std::string& directory, int version)> visit);

// How many processors these groups leave this process, by their quotas of time,
// in part too; nothing where none has one. Those that it may not run on for
// another reason count.
std::optional<double> ProcessorQuota(const std::string& root = "");

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CONTROL_GROUPS_H_
