// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/shared_files.h"

#include <sys/stat.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"

namespace kvcompress {
namespace {

std::optional<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(
      realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) return std::nullopt;
  return std::string(real.get());
}

}  // namespace

std::optional<std::string> FindShared(const v1::SharedDirectory& announced,
                                      const std::string& own) {
  std::optional<std::string> root =
      RealPath(own.empty() ? announced.path() : own);
  struct stat found;
  if (!root || stat(root->c_str(), &found) != 0 ||
      found.st_dev != announced.device() || found.st_ino != announced.inode()) {
    return std::nullopt;
  }
  return root;
}

std::optional<std::string> PathWithin(const std::string& root,
                                      const std::string& path,
                                      bool must_exist) {
  struct stat found;
  std::optional<std::string> real;
  if (stat(path.c_str(), &found) == 0) {
    if (!S_ISREG(found.st_mode)) return std::nullopt;
    real = RealPath(path);
  } else if (!must_exist && lstat(path.c_str(), &found) != 0) {
    const size_t slash = path.rfind('/');
    const size_t name = slash == std::string::npos ? 0 : slash + 1;
    real = RealPath(name == 0 ? "." : path.substr(0, name));
    if (real) {
      absl::StrAppend(&*real, *real == "/" ? "" : "/", path.substr(name));
    }
  }
  if (!real || !IsValidUtf8(*real)) return std::nullopt;
  absl::string_view within = *real;
  if (!absl::ConsumePrefix(&within, root == "/" ? root : root + "/") ||
      within.empty()) {
    return std::nullopt;
  }
  return std::string(within);
}

bool MayBeStreamed(const absl::Status& status) {
  if (absl::IsUnimplemented(status) || absl::IsUnavailable(status) ||
      absl::IsPermissionDenied(status)) {
    return true;
  }
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail && !absl::IsAborted(status) && !absl::IsAlreadyExists(status) &&
         detail->reason != "SAME_FILE" &&
         (detail->field == "input_path" || detail->field == "output_path");
}

}  // namespace kvcompress
