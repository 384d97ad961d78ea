// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The table of options that kv-compressd takes as flags, as environment
// variables and as keys of its configuration file.

#ifndef KVCOMPRESS_SERVER_FLAGS_H_
#define KVCOMPRESS_SERVER_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "config.h"

namespace kvcompress {

struct Flag {
  const char* name;
  // What its value is; empty for a flag that is true or false, and true when
  // it stands alone.
  const char* value;
  const char* help;
  // Whether it may be repeated, or list values with commas.
  bool is_list;
  // Whether an empty value means something.
  bool may_be_empty;
  // Checks and stores; at least one value.
  absl::Status (*set)(absl::Span<const std::string> values, DaemonOptions* out);
};

absl::Span<const Flag> AllFlags();

// "KVCOMPRESS_SOME_NAME" of --some-name.
std::string VariableName(const Flag& flag);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_FLAGS_H_
