// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// GetServerInfo.

#ifndef KVCOMPRESS_SERVER_SERVER_INFO_RPC_H_
#define KVCOMPRESS_SERVER_SERVER_INFO_RPC_H_

#include "kvcompress/v1/server_info.pb.h"
#include "service.h"

namespace kvcompress {

void FillServerInfo(const ServiceOptions& options, bool to_local,
                    v1::GetServerInfoResponse* response);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_SERVER_INFO_RPC_H_
