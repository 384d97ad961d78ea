// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Environment variables that look like options of kv-compressd.

#ifndef KVCOMPRESS_SERVER_ENVIRONMENT_H_
#define KVCOMPRESS_SERVER_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace kvcompress {

// A warning for each variable KVCOMPRESS_... that is neither an option of the
// server nor one of a client of this project, with the name that is nearest.
// What Kubernetes sets for services whose names begin with kvcompress is no
// such variable. `variables` are NAME=VALUE, and end with a null pointer.
std::vector<std::string> UnknownVariables(const char* const* variables);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_ENVIRONMENT_H_
