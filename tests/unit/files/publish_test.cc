// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "files/publish.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/temp_dir.h"

namespace kvcompress {
namespace {

constexpr int kThreads = 8;

// What several publishers of one name at the same time were answered.
std::vector<int> Race(const std::function<int(int number)>& publish) {
  std::vector<int> errors(kThreads);
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      errors[i] = publish(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// The one that was not told EEXIST; -1 where there is not exactly one.
int Winner(const std::vector<int>& errors) {
  const auto winner = std::find(errors.begin(), errors.end(), 0);
  EXPECT_EQ(std::count(errors.begin(), errors.end(), EEXIST), kThreads - 1);
  return winner == errors.end() ? -1
                                : static_cast<int>(winner - errors.begin());
}

class PublishTest : public ::testing::Test {
 protected:
  PublishTest() : folder_(open(dir_.Path("").c_str(), O_PATH | O_DIRECTORY)) {}
  ~PublishTest() override { close(folder_); }

  TempDir dir_;
  const int folder_;
};

TEST_F(PublishTest, OneOfSeveralUnnamedFilesGetsANewName) {
  for (int round = 0; round < 20; ++round) {
    const std::string name = absl::StrCat("out", round);
    const int winner = Winner(Race([&](int number) {
      const int fd = openat(folder_, ".", O_TMPFILE | O_RDWR, 0600);
      EXPECT_EQ(write(fd, std::to_string(number).data(), 1), 1);
      const int error = PublishUnnamed(fd, folder_, name, Taken::kRefuse,
                                       [](const std::string&) {});
      close(fd);
      return error;
    }));
    EXPECT_EQ(dir_.Read(name), std::to_string(winner));
  }
  EXPECT_EQ(dir_.List().size(), 20);
}

using Move = int (*)(int, const std::string&, const std::string&);

int MoveNew(int folder, const std::string& temporary, const std::string& name) {
  return PublishNamed(folder, temporary, name, Taken::kRefuse);
}

class MoveTest : public PublishTest,
                 public ::testing::WithParamInterface<Move> {};

TEST_P(MoveTest, OneOfSeveralNamedFilesGetsANewName) {
  for (int round = 0; round < 20; ++round) {
    const std::string name = absl::StrCat("out", round);
    const int winner = Winner(Race([&](int number) {
      const std::string temporary = absl::StrCat("temporary", number);
      dir_.Write(temporary, std::to_string(number));
      return GetParam()(folder_, temporary, name);
    }));
    EXPECT_EQ(dir_.Read(name), std::to_string(winner));
    for (int i = 0; i < kThreads; ++i) {
      EXPECT_EQ(access(dir_.Path(absl::StrCat("temporary", i)).c_str(), F_OK),
                i == winner ? -1 : 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllWays, MoveTest,
                         ::testing::Values(&MoveNew, &MoveByLink,
                                           &MoveByClaim));

TEST_F(PublishTest, AFileUnderATemporaryNameIsLockedUntilItIsClosed) {
  const int fd = CreateTemporary(folder_, 0600, [](const std::string&) {});
  ASSERT_GE(fd, 0);
  RemoveLeftovers(folder_);
  EXPECT_EQ(dir_.List().size(), 1);
  close(fd);
  RemoveLeftovers(folder_);
  EXPECT_TRUE(dir_.List().empty());
}

TEST_F(PublishTest, OnlyPlainFilesAreTakenForLeftovers) {
  const std::string target = dir_.Write("target", "kept");
  ASSERT_EQ(symlink("target", dir_.Path(TemporaryName()).c_str()), 0);
  ASSERT_EQ(mkfifo(dir_.Path(TemporaryName()).c_str(), 0600), 0);
  ASSERT_EQ(mkdir(dir_.Path(TemporaryName()).c_str(), 0700), 0);
  RemoveLeftovers(folder_);
  EXPECT_EQ(dir_.List().size(), 4);
  EXPECT_EQ(dir_.Read("target"), "kept");
}

}  // namespace
}  // namespace kvcompress
