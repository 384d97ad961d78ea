// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/file_identity.h"

#include <sys/stat.h>

namespace kvcompress {
namespace {

std::optional<FileIdentity> IdentityOfStat(const struct stat& file) {
  if (!S_ISREG(file.st_mode) && !S_ISBLK(file.st_mode)) return std::nullopt;
  return FileIdentity{.device = file.st_dev, .inode = file.st_ino};
}

}  // namespace

std::optional<FileIdentity> IdentityOf(int fd) {
  struct stat file;
  if (fstat(fd, &file) != 0) return std::nullopt;
  return IdentityOfStat(file);
}

std::optional<FileIdentity> IdentityOf(const std::string& path) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0) return std::nullopt;
  return IdentityOfStat(file);
}

}  // namespace kvcompress
