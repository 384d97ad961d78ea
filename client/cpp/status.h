// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Errors as they arrive from a server, and as they are passed on.

#ifndef KVCOMPRESS_CLIENT_CPP_STATUS_H_
#define KVCOMPRESS_CLIENT_CPP_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace grpc {
class Status;
}

namespace kvcompress {

// The same code and message. The google.rpc.ErrorInfo of the service, where
// there is one, becomes the ErrorDetail that GetErrorDetail finds
// (kvcompress/error.h).
absl::Status FromGrpcStatus(const grpc::Status& status);

// `status` with `prefix` before its message; an OK status stays as it is.
absl::Status Annotate(const absl::Status& status, absl::string_view prefix);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_STATUS_H_
