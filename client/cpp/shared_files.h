// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The directory that a server on this machine shares, as this process sees it.

#ifndef KVCOMPRESS_CLIENT_CPP_SHARED_FILES_H_
#define KVCOMPRESS_CLIENT_CPP_SHARED_FILES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "kvcompress/v1/server_info.pb.h"

namespace kvcompress {

// Where this process sees `announced`, as an absolute path without links:
// `own` where it is not empty, else where the server sees it. Nothing when what
// is there is another directory.
std::optional<std::string> FindShared(const v1::SharedDirectory& announced,
                                      const std::string& own);

// `path` within `root`, as the server takes it; nothing when it lies elsewhere.
// Links are followed here, since the server follows none. A file that is there
// has to be a regular one; `must_exist`: it has to be there.
std::optional<std::string> PathWithin(const std::string& root,
                                      const std::string& path, bool must_exist);

// Whether the failure concerns file names, so that streaming may succeed.
bool MayBeStreamed(const absl::Status& status);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_SHARED_FILES_H_
