// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Errors of system calls, worded as Go words them, because scripts written for
// the Go program look for those words.

#ifndef KVCOMPRESS_CLIENT_CPP_ERRNO_ERROR_H_
#define KVCOMPRESS_CLIENT_CPP_ERRNO_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress {

// "open PATH: no such file or directory", with the canonical code of `error`,
// an errno.
absl::Status ErrnoError(int error, absl::string_view operation,
                        absl::string_view path);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_ERRNO_ERROR_H_
