// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// From the library's errors to gRPC's: the canonical code and message, with a
// google.rpc.Status in the details that holds one ErrorInfo (domain
// "kvcompress.v1") and, for a wrong field, a BadRequest; where it is worth
// trying again later, a RetryInfo.

#ifndef KVCOMPRESS_SERVER_ERRORS_H_
#define KVCOMPRESS_SERVER_ERRORS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace kvcompress {

inline constexpr char kErrorDomain[] = "kvcompress.v1";

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_ERRORS_H_
