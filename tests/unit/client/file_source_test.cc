// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/file_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "temp_dir.h"

namespace kvcompress {
namespace {

TEST(FileSourceTest, FillsBuffersUpToTheEnd) {
  TempDir dir;
  auto source = FileSource::Open(dir.Write("in", "abcdefg"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->size(), 7);
  char buffer[5];
  EXPECT_EQ(*(*source)->Read(absl::MakeSpan(buffer)), 5);
  EXPECT_EQ(std::string(buffer, 5), "abcde");
  EXPECT_EQ(*(*source)->Read(absl::MakeSpan(buffer)), 2);
  EXPECT_EQ(std::string(buffer, 2), "fg");
  EXPECT_EQ(*(*source)->Read(absl::MakeSpan(buffer)), 0);
}

TEST(FileSourceTest, ErrorsReadLikeGos) {
  TempDir dir;
  const std::string missing = dir.Path("missing");
  const auto source = FileSource::Open(missing);
  EXPECT_TRUE(absl::IsNotFound(source.status()));
  EXPECT_EQ(source.status().message(),
            "open " + missing + ": no such file or directory");
  auto folder = FileSource::Open(dir.Path(""));
  ASSERT_TRUE(folder.ok());
  char buffer[1];
  EXPECT_EQ((*folder)->Read(absl::MakeSpan(buffer)).status().message(),
            "read " + dir.Path("") + ": is a directory");
}

TEST(FileSourceTest, AFifoWithoutAWriterIsAnError) {
  TempDir dir;
  const std::string path = dir.Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  auto source = FileSource::Open(path);
  ASSERT_TRUE(source.ok()) << source.status();
  char buffer[1];
  const absl::Status status = (*source)->Read(absl::MakeSpan(buffer)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(status.message(),
            "open " + path +
                ": it is a FIFO, and nothing has opened it for writing within "
                "5s");
}

TEST(FileSourceTest, AFifoMayBeWrittenLaterAndInPieces) {
  TempDir dir;
  const std::string path = dir.Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  for (const std::string& text : {std::string(), std::string("abcdef")}) {
    auto source = FileSource::Open(path);
    ASSERT_TRUE(source.ok()) << source.status();
    std::thread writer([&] {
      // The reader waits for a writer, and then for its words.
      absl::SleepFor(absl::Milliseconds(100));
      const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
      for (const char letter : text) {
        absl::SleepFor(absl::Milliseconds(30));
        EXPECT_EQ(write(fd, &letter, 1), 1);
      }
      close(fd);
    });
    std::string all;
    char buffer[4];
    while (true) {
      const auto size = (*source)->Read(absl::MakeSpan(buffer));
      ASSERT_TRUE(size.ok()) << size.status();
      if (*size == 0) break;
      all.append(buffer, *size);
    }
    writer.join();
    EXPECT_EQ(all, text);
  }
}

TEST(FileSourceTest, CancelEndsAReadThatWaits) {
  TempDir dir;
  const std::string path = dir.Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  // Open for writing too, so that the end of the input never comes.
  const int writer = open(path.c_str(), O_RDWR);
  auto source = FileSource::Open(path);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ((*source)->size(), std::nullopt);
  std::thread canceller([&] { (*source)->Cancel(); });
  char buffer[1];
  EXPECT_TRUE(
      absl::IsCancelled((*source)->Read(absl::MakeSpan(buffer)).status()));
  canceller.join();
  EXPECT_TRUE(
      absl::IsCancelled((*source)->Read(absl::MakeSpan(buffer)).status()));
  close(writer);
}

}  // namespace
}  // namespace kvcompress
