// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "client/cpp/renamed_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcompress/error.h"
#include "kvcompress/file_identity.h"
#include "temp_dir.h"

namespace kvcompress {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::UnorderedElementsAre;

std::unique_ptr<OutputFile> Create(const std::string& path,
                                   const OutputOptions& options = {}) {
  absl::StatusOr<std::unique_ptr<OutputFile>> file =
      OutputFile::Create(path, options);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *std::move(file) : nullptr;
}

mode_t Mode(const std::string& path) {
  struct stat status;
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 0777;
}

TEST(OutputFileTest, PublishesOnCommitAlone) {
  TempDir dir;
  auto file = Create(dir.Path("out"));
  ASSERT_TRUE(file->WriteAt(4, "body").ok());
  ASSERT_TRUE(file->WriteAt(0, "head").ok());
  // Nothing that a process that is killed would leave behind.
  EXPECT_THAT(dir.List(), IsEmpty());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_THAT(dir.List(), ElementsAre("out"));
  EXPECT_EQ(dir.Read("out"), "headbody");
}

TEST(OutputFileTest, ATemporaryNameDoesWhereFilesNeedNames) {
  TempDir dir;
  const auto create = [&] {
    return *RenamedFile::CreateNamed("out", dir.Path("out"), std::nullopt, {});
  };
  auto file = create();
  ASSERT_TRUE(file->WriteAt(0, "old").ok());
  EXPECT_THAT(dir.List(),
              ElementsAre(MatchesRegex("\\.kvcompress-[0-9a-f]{16}\\.tmp")));
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_THAT(dir.List(), ElementsAre("out"));
  file = create();
  ASSERT_TRUE(file->WriteAt(0, "new").ok());
  EXPECT_EQ(dir.Read("out"), "old");
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(dir.Read("out"), "new");
  create();
  EXPECT_THAT(dir.List(), ElementsAre("out"));
}

TEST(OutputFileTest, AFileThatAppearedMeanwhileIsReplaced) {
  TempDir dir;
  auto file = Create(dir.Path("out"));
  ASSERT_TRUE(file->WriteAt(0, "ours").ok());
  dir.Write("out", "theirs");
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(dir.Read("out"), "ours");
  EXPECT_THAT(dir.List(), ElementsAre("out"));
}

TEST(OutputFileTest, AFileThatAppearedMeanwhileIsKeptWithoutOverwrite) {
  TempDir dir;
  const auto commit = [&](std::unique_ptr<OutputFile> file) {
    dir.Write("out", "theirs");
    const absl::Status status = file->Commit();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
    file.reset();
    EXPECT_EQ(dir.Read("out"), "theirs");
    EXPECT_THAT(dir.List(), ElementsAre("out"));
    std::filesystem::remove(dir.Path("out"));
  };
  commit(Create(dir.Path("out"), {.overwrite = false}));
  commit(*RenamedFile::CreateNamed("out", dir.Path("out"), std::nullopt,
                                   {.overwrite = false}));
  dir.Write("out", "theirs");
  EXPECT_EQ(
      OutputFile::Create(dir.Path("out"), {.overwrite = false}).status().code(),
      absl::StatusCode::kAlreadyExists);
}

TEST(OutputFileTest, AFileThatIsReadIsNeverReplaced) {
  TempDir dir;
  const std::string input = dir.Write("in", "precious");
  ASSERT_EQ(link(input.c_str(), dir.Path("hard").c_str()), 0);
  ASSERT_EQ(symlink("in", dir.Path("soft").c_str()), 0);
  const OutputOptions options = {.inputs = {std::nullopt, IdentityOf(input)}};
  for (const char* const name : {"in", "./in", "hard", "soft"}) {
    const absl::Status refusal =
        OutputFile::Create(dir.Path(name), options).status();
    EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(GetErrorDetail(refusal)->reason, "SAME_FILE") << name;
  }
  EXPECT_EQ(dir.Read("in"), "precious");
  EXPECT_TRUE(OutputFile::Create(dir.Path("other"), options).ok());
  EXPECT_TRUE(
      OutputFile::Create("/dev/null", {.inputs = {IdentityOf("/dev/null")}})
          .ok());
}

TEST(OutputFileTest, LeavesNothingWithoutCommit) {
  TempDir dir;
  ASSERT_TRUE(Create(dir.Path("out"))->WriteAt(0, "half").ok());
  EXPECT_THAT(dir.List(), IsEmpty());
}

TEST(OutputFileTest, KeepsTheOldFileUntilCommit) {
  TempDir dir;
  const std::string path = dir.Write("out", "old");
  {
    auto file = Create(path);
    ASSERT_TRUE(file->WriteAt(0, "new and longer").ok());
    EXPECT_EQ(dir.Read("out"), "old");
  }
  EXPECT_EQ(dir.Read("out"), "old");
  auto file = Create(path);
  ASSERT_TRUE(file->WriteAt(0, "nu").ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(dir.Read("out"), "nu");
}

TEST(OutputFileTest, PermissionsAreThoseOfTheFileReplacedOrOfAnyNewFile) {
  TempDir dir;
  const mode_t mask = umask(027);
  ASSERT_TRUE(Create(dir.Path("new"))->Commit().ok());
  const std::string secret = dir.Write("secret", "x");
  ASSERT_EQ(chmod(secret.c_str(), 0600), 0);
  ASSERT_TRUE(Create(secret)->Commit().ok());
  umask(mask);
  EXPECT_EQ(Mode(dir.Path("new")), 0640);
  EXPECT_EQ(Mode(secret), 0600);
}

TEST(OutputFileTest, PermissionsOfTheInputGoBeforeOthers) {
  TempDir dir;
  const std::string old = dir.Write("old", "x");
  ASSERT_EQ(chmod(old.c_str(), 0644), 0);
  for (const std::string& path : {old, dir.Path("new")}) {
    absl::StatusOr<std::unique_ptr<OutputFile>> file =
        OutputFile::Create(path, {.permissions = 0600});
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Commit().ok());
    EXPECT_EQ(Mode(path), 0600);
  }
}

TEST(OutputFileTest, FollowsSymbolicLinks) {
  TempDir dir;
  ASSERT_EQ(mkdir(dir.Path("sub").c_str(), 0777), 0);
  ASSERT_EQ(symlink("sub/middle", dir.Path("link").c_str()), 0);
  ASSERT_EQ(symlink("target", dir.Path("sub/middle").c_str()), 0);
  auto file = Create(dir.Path("link"));  // leads to a file not yet there
  ASSERT_TRUE(file->WriteAt(0, "through").ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(dir.Read("sub/target"), "through");
  char text[16];
  EXPECT_EQ(readlink(dir.Path("link").c_str(), text, sizeof(text)), 10);
}

TEST(OutputFileTest, LongNamesFit) {
  TempDir dir;
  const std::string name(255, 'n');
  ASSERT_TRUE(Create(dir.Path(name))->Commit().ok());
  EXPECT_THAT(dir.List(), ElementsAre(name));
}

TEST(OutputFileTest, DevicesGetACopy) {
  auto file = Create("/dev/null");
  ASSERT_TRUE(file->WriteAt(0, "x").ok());
  EXPECT_TRUE(file->Commit().ok());
}

TEST(OutputFileTest, AFullDeviceIsAnError) {
  auto file = Create("/dev/full");
  ASSERT_TRUE(file->WriteAt(0, "x").ok());
  EXPECT_EQ(file->Commit().message(),
            "write /dev/full: no space left on device");
}

TEST(OutputFileTest, AFifoGetsACopy) {
  TempDir dir;
  const std::string path = dir.Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  std::string received;
  std::thread reader([&] { received = dir.Read("fifo"); });
  auto file = Create(path);
  ASSERT_TRUE(file->WriteAt(2, "c").ok());
  ASSERT_TRUE(file->WriteAt(0, "ab").ok());
  ASSERT_TRUE(file->Commit().ok());
  file.reset();
  reader.join();
  EXPECT_EQ(received, "abc");
}

TEST(OutputFileTest, ErrorsNameTheFileOfTheCaller) {
  TempDir dir;
  const std::string missing = dir.Path("missing/out");
  EXPECT_EQ(OutputFile::Create(missing).status().message(),
            "open " + missing + ": no such file or directory");
  EXPECT_EQ(OutputFile::Create(dir.Path("")).status().message(),
            "open " + dir.Path("") + ": is a directory");
  ASSERT_EQ(symlink("loop", dir.Path("loop").c_str()), 0);
  EXPECT_THAT(
      std::string(OutputFile::Create(dir.Path("loop")).status().message()),
      EndsWith("loop: too many levels of symbolic links"));
}

std::string hooked;
bool hook_called_last_with_null = false;

TEST(OutputFileTest, TellsTheHookBeforeAndAfter) {
  TempDir dir;
  const auto hook = [](const char* path) {
    hook_called_last_with_null = path == nullptr;
    if (path == nullptr) return;
    hooked = path;
    EXPECT_NE(access(path, F_OK), 0) << "told too late";
  };
  auto file = *RenamedFile::CreateNamed("out", dir.Path("out"), std::nullopt,
                                        {.temporary_hook = hook});
  EXPECT_EQ(access(hooked.c_str(), F_OK), 0);
  EXPECT_FALSE(hook_called_last_with_null);
  file.reset();
  EXPECT_TRUE(hook_called_last_with_null);
  // A file that replaces another has a name while Commit does so.
  hooked.clear();
  file = Create(dir.Write("out", "old"), {.temporary_hook = hook});
  EXPECT_EQ(hooked, "");
  hook_called_last_with_null = false;
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_NE(hooked, "");
  EXPECT_TRUE(hook_called_last_with_null);
  EXPECT_THAT(dir.List(), ElementsAre("out"));
}

TEST(IsStandardOutputTest, KnowsItsNames) {
  TempDir dir;
  EXPECT_TRUE(IsStandardOutput("-"));
  EXPECT_TRUE(IsStandardOutput("/dev/stdout"));
  EXPECT_FALSE(IsStandardOutput(dir.Path("-")));
  EXPECT_FALSE(IsStandardOutput(dir.Write("other", "")));
}

}  // namespace
}  // namespace kvcompress
