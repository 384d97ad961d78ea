// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The three versions of KV Compress, which change independently: the release
// (semantic versioning), the API (the protobuf package) and the artefact format
// (core/FORMAT.md).

#ifndef KVCOMPRESS_VERSION_H_
#define KVCOMPRESS_VERSION_H_

namespace kvcompress {

inline constexpr char kVersion[] = "0.1.0";
inline constexpr char kApiVersion[] = "v1";

// Version of the artefact format that is written, and the oldest that is read.
inline constexpr int kFormatVersion = 1;
inline constexpr int kMinFormatVersion = 1;

}  // namespace kvcompress

#endif  // KVCOMPRESS_VERSION_H_
