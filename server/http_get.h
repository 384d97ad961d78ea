// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// As much of an HTTP client as a probe needs.

#ifndef KVCOMPRESS_SERVER_HTTP_GET_H_
#define KVCOMPRESS_SERVER_HTTP_GET_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "address.h"

namespace kvcompress {

// The status of the answer to `GET path`, such as 200. All of it takes
// `timeout` at most, apart from looking up a host that is a name.
// UNAVAILABLE, with the reason, when there is no such answer.
absl::StatusOr<int> GetHttpStatus(const ListenAddress& address,
                                  absl::string_view path,
                                  absl::Duration timeout);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_HTTP_GET_H_
