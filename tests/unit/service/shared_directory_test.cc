// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "shared_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/temp_dir.h"
#include "files/publish.h"
#include "kvcompress/error.h"
#include "read_ahead.h"

namespace kvcompress {
namespace {

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class OpenBeneathTest
    : public ::testing::TestWithParam<int (*)(int, const std::string&, int)> {
 protected:
  void SetUp() override {
    mkdir(dir_.Path("a").c_str(), 0700);
    mkdir(dir_.Path("a/b").c_str(), 0700);
    Write(dir_.Path("a/b/file"), "x");
    ASSERT_EQ(symlink("a", dir_.Path("link").c_str()), 0);
    ASSERT_EQ(symlink("b/file", dir_.Path("a/last").c_str()), 0);
    root_ = FileDescriptor(open(dir_.Path("").c_str(), O_PATH | O_DIRECTORY));
    ASSERT_TRUE(root_.ok());
  }

  // 0, or the errno.
  int Open(const std::string& path, int flags = O_RDONLY) {
    const FileDescriptor fd(GetParam()(root_.get(), path, flags));
    return fd.ok() ? 0 : errno;
  }
  int OpenFolder(const std::string& path) {
    return Open(path, O_RDONLY | O_DIRECTORY);
  }

  TempDir dir_;
  FileDescriptor root_;
};

TEST_P(OpenBeneathTest, FollowsFoldersAndNoLinks) {
  EXPECT_EQ(Open("a/b/file"), 0);
  EXPECT_EQ(Open("a/b"), 0);
  EXPECT_EQ(Open("link/b/file"), ELOOP);
  EXPECT_EQ(Open("a/last"), ELOOP);
  EXPECT_EQ(Open("link"), ELOOP);
  EXPECT_EQ(OpenFolder("link"), ELOOP);
  EXPECT_EQ(OpenFolder("a/b/file"), ENOTDIR);
  EXPECT_EQ(OpenFolder("a/b"), 0);
  EXPECT_EQ(Open("none/file"), ENOENT);
  EXPECT_EQ(Open("a/b/file/x"), ENOTDIR);
}

INSTANTIATE_TEST_SUITE_P(BothWays, OpenBeneathTest,
                         ::testing::Values(&OpenBeneath, &OpenBeneathStepwise));

TEST(SharedDirectory, PublishesWhatIsWholeAndNothingElse) {
  const TempDir dir;
  const auto shared = SharedDirectory::Open(dir.Path(""));
  ASSERT_TRUE(shared.ok()) << shared.status();
  {
    auto output = (*shared)->CreateOutput("out", Existing::kRefuse,
                                          "output_path", nullptr);
    ASSERT_TRUE(output.ok()) << output.status();
    ASSERT_TRUE(output->WriteAt(3, "def").ok());
    ASSERT_TRUE(output->WriteAt(0, "abc").ok());
    EXPECT_NE(access(dir.Path("out").c_str(), F_OK), 0);
    // Somebody is faster.
    Write(dir.Path("out"), "theirs");
    const absl::Status late = output->Publish(0640);
    EXPECT_EQ(late.code(), absl::StatusCode::kAlreadyExists);
  }
  auto output = (*shared)->CreateOutput("out", Existing::kReplace,
                                        "output_path", nullptr);
  ASSERT_TRUE(output.ok()) << output.status();
  ASSERT_TRUE(output->WriteAt(0, "ours").ok());
  ASSERT_TRUE(output->Publish(0640).ok());
  std::string bytes;
  std::ifstream(dir.Path("out")) >> bytes;
  EXPECT_EQ(bytes, "ours");
  struct stat found;
  ASSERT_EQ(stat(dir.Path("out").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640);
  EXPECT_EQ(found.st_nlink, 1);
}

ino_t InodeOf(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(SharedDirectory, ReusesAFileThatIsItsOwn) {
  const TempDir dir;
  const auto shared = SharedDirectory::Open(dir.Path(""));
  ASSERT_TRUE(shared.ok()) << shared.status();
  const std::string path = dir.Path("out");
  Write(path, "what was longer before");
  const ino_t before = InodeOf(path);
  {
    auto output = (*shared)->CreateOutput("out", Existing::kReuse,
                                          "output_path", nullptr);
    ASSERT_TRUE(output.ok()) << output.status();
    ASSERT_TRUE(output->WriteAt(0, "short").ok());
    EXPECT_EQ(InodeOf(path), 0) << "what is not whole has no name";
    ASSERT_TRUE(output->Publish(0640).ok());
  }
  EXPECT_EQ(InodeOf(path), before);
  EXPECT_EQ(ContentOf(path), "short");
  {
    auto output = (*shared)->CreateOutput("out", Existing::kReuse,
                                          "output_path", nullptr);
    ASSERT_TRUE(output.ok()) << output.status();
    ASSERT_TRUE(output->WriteAt(0, "partly").ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.Path("")));
}

TEST(SharedDirectory, ReusesNothingElse) {
  const TempDir dir;
  const auto shared = SharedDirectory::Open(dir.Path(""));
  ASSERT_TRUE(shared.ok()) << shared.status();
  const auto write = [&](const std::string& name, const SharedInput* input) {
    auto output =
        (*shared)->CreateOutput(name, Existing::kReuse, "output_path", input);
    ASSERT_TRUE(output.ok()) << output.status();
    ASSERT_TRUE(output->WriteAt(0, "new").ok());
    ASSERT_TRUE(output->Publish(0640).ok());
    EXPECT_EQ(ContentOf(dir.Path(name)), "new");
  };
  Write(dir.Path("elsewhere"), "old");
  ASSERT_EQ(link(dir.Path("elsewhere").c_str(), dir.Path("linked").c_str()), 0);
  write("linked", nullptr);
  EXPECT_EQ(ContentOf(dir.Path("elsewhere")), "old");

  write("none", nullptr);
  if (geteuid() != 0) return;
  Write(dir.Path("theirs"), "old");
  char old[4] = {};
  const FileDescriptor theirs(open(dir.Path("theirs").c_str(), O_RDONLY));
  ASSERT_EQ(chown(dir.Path("theirs").c_str(), 12345, 12345), 0);
  write("theirs", nullptr);
  EXPECT_EQ(pread(theirs.get(), old, 3, 0), 3);
  EXPECT_STREQ(old, "old");
}

TEST(SharedDirectory, AnInputThatIsTheOutputIsNeverReplaced) {
  const TempDir dir;
  const auto shared = SharedDirectory::Open(dir.Path(""));
  ASSERT_TRUE(shared.ok()) << shared.status();
  Write(dir.Path("input"), "old");
  ASSERT_EQ(link(dir.Path("input").c_str(), dir.Path("linked").c_str()), 0);
  const auto input = (*shared)->OpenInput("input", "input_path");
  ASSERT_TRUE(input.ok()) << input.status();
  for (const Existing existing :
       {Existing::kRefuse, Existing::kReplace, Existing::kReuse}) {
    for (const char* const name : {"input", "linked"}) {
      const absl::Status refusal =
          (*shared)
              ->CreateOutput(name, existing, "output_path", &*input)
              .status();
      EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument) << refusal;
      EXPECT_EQ(GetErrorDetail(refusal)->reason, "SAME_FILE");
      EXPECT_EQ(ContentOf(dir.Path(name)), "old");
    }
  }
}

// A file under a temporary name, of a process that is gone unless `holder`.
std::string Leftover(const TempDir& dir, FileDescriptor* holder = nullptr) {
  const std::string path = dir.Path(TemporaryName());
  Write(path, "half");
  if (holder != nullptr) {
    *holder = FileDescriptor(open(path.c_str(), O_RDONLY));
    EXPECT_EQ(HoldTemporary(holder->get()), 0);
  }
  return path;
}

TEST(SharedDirectory, WhatAKilledServerLeftIsRemovedByTheNext) {
  const TempDir dir;
  FileDescriptor holder;
  const std::string used = Leftover(dir, &holder);
  const std::string left = Leftover(dir);
  Write(dir.Path(".kvcompress-notes.tmp"), "of somebody else");
  Write(dir.Path("out"), "old");
  const auto shared = SharedDirectory::Open(dir.Path(""));
  ASSERT_TRUE(shared.ok()) << shared.status();
  auto output = (*shared)->CreateOutput("out", Existing::kReplace,
                                        "output_path", nullptr);
  ASSERT_TRUE(output.ok()) << output.status();
  ASSERT_TRUE(output->Publish(0640).ok());
  EXPECT_NE(access(left.c_str(), F_OK), 0);
  EXPECT_EQ(access(used.c_str(), F_OK), 0);
  EXPECT_EQ(access(dir.Path(".kvcompress-notes.tmp").c_str(), F_OK), 0);
  holder.Close();
  (*shared)->RemoveLeftovers();
  EXPECT_NE(access(used.c_str(), F_OK), 0);
  EXPECT_EQ(access(dir.Path("out").c_str(), F_OK), 0);
}

TEST(SharedDirectory, AnInputSettlesWhenNobodyWritesAndTheClockHasGoneOn) {
  const TempDir dir;
  const auto shared = SharedDirectory::Open(dir.Path(""));
  ASSERT_TRUE(shared.ok()) << shared.status();
  const auto unsettled = [&] {
    return (*shared)->OpenInput("in", "input_path")->unsettled();
  };
  Write(dir.Path("in"), "x");
  while (unsettled()) {
  }
  const auto input = (*shared)->OpenInput("in", "input_path");
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_FALSE(input->HasWriter());
  FileDescriptor writer(open(dir.Path("in").c_str(), O_RDWR));
  EXPECT_TRUE(unsettled());
  EXPECT_TRUE(input->HasWriter());
  // A writer that comes while the file is looked at is not held up for good.
  writer = FileDescriptor(open(dir.Path("in").c_str(), O_RDWR));
  ASSERT_TRUE(writer.ok());
  writer.Close();
  while (unsettled()) {
  }
}

// What a client can make the system say is an error of the client.
TEST(SharedDirectory, NamesThatAreTooLongAreTheClientsFault) {
  const TempDir dir;
  const auto shared = SharedDirectory::Open(dir.Path(""));
  ASSERT_TRUE(shared.ok()) << shared.status();
  const std::string longest(255, 'n');
  Write(dir.Path(longest), "x");
  EXPECT_TRUE((*shared)->OpenInput(longest, "input_path").ok());
  std::string deep;
  while (deep.size() < 5000) absl::StrAppend(&deep, "folder/");
  for (const std::string& path :
       {longest + "n", std::string(300, 'n'), longest + "n/in",
        "folder/" + longest + "n", deep + "in"}) {
    const uint64_t limit = path.size() > 4095 ? 4095 : 255;
    const absl::Status refusals[] = {
        (*shared)->OpenInput(path, "input_path").status(),
        (*shared)
            ->CreateOutput(path, Existing::kReplace, "output_path", nullptr)
            .status()};
    for (const absl::Status& refusal : refusals) {
      EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument) << refusal;
      EXPECT_EQ(GetErrorDetail(refusal)->reason, "INVALID_PATH");
      EXPECT_EQ(GetErrorDetail(refusal)->limit, limit);
    }
  }
}

TEST(SharedDirectory, AFileUnderALeaseIsBusy) {
  const TempDir dir;
  const auto shared = SharedDirectory::Open(dir.Path(""));
  Write(dir.Path("in"), "x");
  const FileDescriptor holder(open(dir.Path("in").c_str(), O_RDWR));
  if (fcntl(holder.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP();
  signal(SIGIO, SIG_IGN);  // the kernel asks the holder to give it back
  const absl::Status refusal =
      (*shared)->OpenInput("in", "input_path").status();
  EXPECT_EQ(refusal.code(), absl::StatusCode::kUnavailable) << refusal;
  EXPECT_EQ(GetErrorDetail(refusal)->reason, "FILE_BUSY");
  fcntl(holder.get(), F_SETLEASE, F_UNLCK);
  EXPECT_TRUE((*shared)->OpenInput("in", "input_path").ok());
}

TEST(SharedDirectory, WithoutDescriptorsItSaysSoAndGoesOn) {
  const TempDir dir;
  const auto shared = SharedDirectory::Open(dir.Path(""));
  Write(dir.Path("in"), "x");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status refusals[] = {
      (*shared)->OpenInput("in", "input_path").status(),
      (*shared)
          ->CreateOutput("out", Existing::kReplace, "output_path", nullptr)
          .status()};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const absl::Status& refusal : refusals) {
    EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted) << refusal;
    EXPECT_EQ(GetErrorDetail(refusal)->reason, "OUT_OF_FILES");
  }
  EXPECT_TRUE((*shared)->OpenInput("in", "input_path").ok());
}

std::string ReadAll(int fd, uint64_t size) {
  std::string all;
  ReadAhead reader(fd, size);
  while (true) {
    const absl::StatusOr<absl::string_view> bytes = reader.Next();
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (!bytes.ok() || bytes->empty()) return all;
    all.append(bytes->data(), bytes->size());
  }
}

TEST(ReadAhead, GivesTheFileInOrder) {
  const TempDir dir;
  for (const size_t size :
       {size_t{0}, size_t{1}, ReadAhead::kSlice, ReadAhead::kSlice + 1,
        3 * ReadAhead::kSlice, 5 * ReadAhead::kSlice - 7}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * i >> 3);
    Write(dir.Path("in"), bytes);
    const FileDescriptor fd(open(dir.Path("in").c_str(), O_RDONLY));
    EXPECT_EQ(ReadAll(fd.get(), size), bytes);
    // One that has become shorter ends early.
    const uint64_t before = size + 2 * ReadAhead::kSlice + 5;
    EXPECT_EQ(ReadAll(fd.get(), before), bytes);
    // And one may stop before the end.
    ReadAhead stopped(fd.get(), size);
    EXPECT_TRUE(stopped.Next().ok());
  }
}

TEST(ReadAhead, SaysWhenItCannotRead) {
  const TempDir dir;
  const FileDescriptor folder(open(dir.Path("").c_str(), O_RDONLY));
  for (const uint64_t size : {uint64_t{10}, uint64_t{10 << 20}}) {
    ReadAhead reader(folder.get(), size);
    EXPECT_EQ(reader.Next().status().code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace kvcompress
