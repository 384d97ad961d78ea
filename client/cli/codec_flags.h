// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The flags that say which codec compresses.

#ifndef KVCOMPRESS_CLIENT_CLI_CODEC_FLAGS_H_
#define KVCOMPRESS_CLIENT_CLI_CODEC_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/flags.h"
#include "client/cli/raw_flags.h"

namespace kvcompress::cli {

// What is compressed with where nothing says so.
inline constexpr absl::string_view kDefaultCodec = "auto";
inline constexpr absl::string_view kFirstReleaseCodec = "int4";

// Composes the codec string from -codec and the shorthands for parts of it.
// What a codec takes, the service says; of the Go program's two flags their
// messages are here. Where no codec is named it is auto at effort fast, as in
// the API, but int4 for the flags of the first release alone, and for
// -group-size and -sparsity, which are its own.
absl::Status SetCodec(const RawFlags& raw, Flags* flags);

// The name in a codec string: "int4" of "int4:32+zstd".
absl::string_view NameOfCodec(absl::string_view codec);

// Splits the value of -codec that -compare and bench take: at spaces, and at
// commas before the name of a codec.
std::vector<std::string> SplitCodecs(absl::string_view text);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_CODEC_FLAGS_H_
