// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a file is that is no safetensors file, by its first bytes.

#ifndef KVCOMPRESS_CLIENT_CLI_FILE_TYPE_H_
#define KVCOMPRESS_CLIENT_CLI_FILE_TYPE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvcompress::cli {

// How much of a file is looked at, in bytes.
inline constexpr size_t kFileTypeBytes = 512;

// OK for bytes that a safetensors file may begin with, damaged ones included.
// Else INVALID_ARGUMENT, with what the file is and what to do about it; its
// reason is INVALID_HEADER, as of any file without such a header. `start` is
// the first kFileTypeBytes of the file, or all of it. OK too for up to eight
// bytes, of which nothing can be told but that they are too few.
absl::Status CheckFileType(absl::string_view start);

// The same for a regular file; INVALID_ARGUMENT for a directory. OK for what
// cannot be read, which whoever opens it will report.
absl::Status CheckFileTypeOf(const std::string& path);

// Whether a regular file begins as every artefact does.
bool IsArtefact(const std::string& path);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_FILE_TYPE_H_
