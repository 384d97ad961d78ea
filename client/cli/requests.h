// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Flags as options of the API.

#ifndef KVCOMPRESS_CLIENT_CLI_REQUESTS_H_
#define KVCOMPRESS_CLIENT_CLI_REQUESTS_H_

#include "absl/status/status.h"
#include "client/cli/flags.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "kvcompress/v1/server_info.pb.h"

namespace kvcompress::cli {

v1::CompressOptions ToCompressOptions(const Flags& flags);
v1::DecompressOptions ToDecompressOptions(const Flags& flags);

// UNIMPLEMENTED: the API has no way yet to ask for a sparsity. The message says
// whether it is the server or this client that is too old for it.
absl::Status SparsityError(const v1::GetServerInfoResponse& server);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_REQUESTS_H_
