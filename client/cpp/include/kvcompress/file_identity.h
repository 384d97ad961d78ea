// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which file a name or a descriptor stands for: spellings of a path, symbolic
// and hard links of one file have one identity.

#ifndef KVCOMPRESS_FILE_IDENTITY_H_
#define KVCOMPRESS_FILE_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace kvcompress {

struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;

  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};

// Of a regular file or a block device; nothing for what keeps no bytes, such as
// a pipe or a terminal, and for what is not there.
std::optional<FileIdentity> IdentityOf(int fd);
std::optional<FileIdentity> IdentityOf(const std::string& path);

}  // namespace kvcompress

#endif  // KVCOMPRESS_FILE_IDENTITY_H_
