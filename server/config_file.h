// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The configuration file of kv-compressd: a YAML mapping from names of flags,
// without the dashes before them, to values.
//
//   listen: [127.0.0.1:50051, unix:/run/kvcompress/kv.sock]
//   memory-budget-bytes: 2GiB

#ifndef KVCOMPRESS_SERVER_CONFIG_FILE_H_
#define KVCOMPRESS_SERVER_CONFIG_FILE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvcompress {

struct FileSetting {
  std::vector<std::string> values;  // at least one
  std::string source;               // "FILE:LINE: NAME", for messages
};

// Settings by the name of their flag. A file that is empty, or has only
// comments, has none. INVALID_ARGUMENT, naming the file and the line, for what
// is not YAML, is of another shape, names no flag or one twice, or gives
// several values to a flag that takes one. Whether the values fit is not looked
// at.
absl::StatusOr<std::map<std::string, FileSetting>> ReadConfigFile(
    const std::string& path);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CONFIG_FILE_H_
