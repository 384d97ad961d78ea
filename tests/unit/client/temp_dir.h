// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A folder that lives as long as the object.

#ifndef KVCOMPRESS_TESTS_UNIT_CLIENT_TEMP_DIR_H_
#define KVCOMPRESS_TESTS_UNIT_CLIENT_TEMP_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace kvcompress {

class TempDir {
 public:
  TempDir() {
    std::string pattern = ::testing::TempDir() + "/kvcompress.XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }

  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  // Names in the folder.
  std::vector<std::string> List() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

 private:
  std::string path_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_TESTS_UNIT_CLIENT_TEMP_DIR_H_
