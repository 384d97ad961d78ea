// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Files of a shared directory that all threads of a call read and write by
// themselves. Bytes are copied and not mapped; see shared_directory.h.

#ifndef KVCOMPRESS_SERVER_PLACED_FILES_H_
#define KVCOMPRESS_SERVER_PLACED_FILES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kvcompress/places.h"
#include "shared_directory.h"

namespace kvcompress {

// ABORTED for a file that has become shorter, INTERNAL for one that cannot be
// read.
class PlacedInput final : public PlacedSource {
 public:
  // `file` outlives this. With `twice` it remembers what was read.
  PlacedInput(const SharedInput* file, bool twice)
      : file_(*file), twice_(twice) {}

  uint64_t size() const override { return file_.size(); }
  absl::StatusOr<absl::string_view> Read(uint64_t offset, size_t size,
                                         std::string* buffer) const override;

  // Reads again, for about so long, what was read; true when there is more.
  // ABORTED where it is other bytes. When nobody else reads.
  absl::StatusOr<bool> ReadAgain(absl::Duration most);

 private:
  struct Reading {
    uint64_t offset = 0;
    size_t size = 0;
    std::array<uint64_t, 2> checksum = {};
  };

  absl::Status Fill(uint64_t offset, size_t size, char* bytes) const;

  const SharedInput& file_;
  const bool twice_;
  mutable std::mutex mutex_;
  mutable std::vector<Reading> readings_;
  size_t read_again_ = 0;
  std::string buffer_;
};

class PlacedOutput final : public PlacedSink {
 public:
  // `file` outlives this.
  explicit PlacedOutput(SharedOutput* file) : file_(*file) {}

  absl::Status Write(uint64_t offset, absl::string_view bytes) override {
    return file_.WriteAt(offset, bytes);
  }

 private:
  SharedOutput& file_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_PLACED_FILES_H_
