// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A folder with files of /proc and /sys, in place of the root.

#ifndef KVCOMPRESS_TESTS_UNIT_SUPPORT_FAKE_ROOT_H_
#define KVCOMPRESS_TESTS_UNIT_SUPPORT_FAKE_ROOT_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kvcompress::testing {

class FakeRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "root.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

}  // namespace kvcompress::testing

#endif  // KVCOMPRESS_TESTS_UNIT_SUPPORT_FAKE_ROOT_H_
