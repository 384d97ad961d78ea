// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Flags as options of the API.

#ifndef KVCOMPRESS_CLIENT_CLI_REQUESTS_H_
#define KVCOMPRESS_CLIENT_CLI_REQUESTS_H_

#include "client/cli/flags.h"
#include "kvcompress/v1/compression_service.pb.h"

namespace kvcompress::cli {

v1::CompressOptions ToCompressOptions(const Flags& flags);
v1::DecompressOptions ToDecompressOptions(const Flags& flags);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_REQUESTS_H_
