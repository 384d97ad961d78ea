// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Files and memory in which any byte can be read and written at any time, by
// any thread.

#ifndef KVCOMPRESS_PLACES_H_
#define KVCOMPRESS_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvcompress {

// Bytes that can be read at any time, in any order. Thread safe.
class PlacedSource {
 public:
  virtual ~PlacedSource() = default;

  virtual uint64_t size() const = 0;

  // Bytes [offset, offset + size). They are valid for as long as the source is
  // and `*buffer` is not used for anything else. REQUIRES: they are within
  // size().
  virtual absl::StatusOr<absl::string_view> Read(uint64_t offset, size_t size,
                                                 std::string* buffer) const = 0;
};

// Where bytes go, at any time, in any order. Nobody writes a byte twice. Thread
// safe.
class PlacedSink {
 public:
  virtual ~PlacedSink() = default;

  // Memory in which bytes [offset, offset + size) can be written instead of
  // being passed to Write; null where there is none. Asked for parts of one
  // tensor.
  virtual char* At(uint64_t, uint64_t) { return nullptr; }

  virtual absl::Status Write(uint64_t offset, absl::string_view bytes) = 0;
};

// Memory that does not change meanwhile, and outlives this.
class MemorySource final : public PlacedSource {
 public:
  explicit MemorySource(absl::string_view bytes) : bytes_(bytes) {}

  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<absl::string_view> Read(uint64_t offset, size_t size,
                                         std::string*) const override {
    return bytes_.substr(offset, size);
  }

 private:
  const absl::string_view bytes_;
};

// The same of what is written to.
class MemorySink final : public PlacedSink {
 public:
  explicit MemorySink(absl::Span<char> bytes) : bytes_(bytes) {}

  // What is empty may be at the end.
  char* At(uint64_t offset, uint64_t) override {
    return bytes_.data() + offset;
  }
  absl::Status Write(uint64_t offset, absl::string_view bytes) override {
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
    return absl::OkStatus();
  }

 private:
  const absl::Span<char> bytes_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PLACES_H_
