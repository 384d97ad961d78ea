// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Where the client's bytes come from and where they go. Files are in
// file_source.h and output_file.h.

#ifndef KVCOMPRESS_BYTE_STREAM_H_
#define KVCOMPRESS_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvcompress {

// Bytes to be read once, in order. One thread reads; Cancel may come from any
// other.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Puts the bytes that are there at the front of `buffer` and returns their
  // number; waits when there are none yet. 0 is the end of the input.
  // REQUIRES: `buffer` is not empty.
  virtual absl::StatusOr<size_t> Read(absl::Span<char> buffer) = 0;

  // Makes a Read that waits, and every later one, return CANCELLED soon.
  virtual void Cancel() = 0;
};

// A file being written at positions of the caller's choice. Not thread safe.
class ByteSink {
 public:
  virtual ~ByteSink() = default;

  virtual absl::Status WriteAt(uint64_t offset, absl::string_view bytes) = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_BYTE_STREAM_H_
