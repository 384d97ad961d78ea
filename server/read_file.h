// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Reading a file of the operator's: a certificate, a profile.

#ifndef KVCOMPRESS_SERVER_READ_FILE_H_
#define KVCOMPRESS_SERVER_READ_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <string>

#include "absl/status/statusor.h"

namespace kvcompress {

// By which a file is known to be the same and unchanged.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  int64_t modified = 0;  // nanoseconds
  int64_t changed = 0;   // of the inode, nanoseconds

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Of a path, through links. FAILED_PRECONDITION, naming it, when there is no
// regular file.
absl::StatusOr<FileStamp> StampOf(const std::string& path);

// All of a regular file, of at most `most` bytes. `*stamp`, unless null, is
// that of what was read. FAILED_PRECONDITION, naming the file, for what cannot
// be read, is longer, or changes meanwhile.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            uint64_t most,
                                            FileStamp* stamp = nullptr);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_READ_FILE_H_
