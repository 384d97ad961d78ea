// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the command line makes of text: lists of codecs, names of outputs,
// columns, lines of progress, and files of other kinds.

#include <cstdint>
#include <string>

#include "client/cli/batch.h"
#include "client/cli/codec_flags.h"
#include "client/cli/columns.h"
#include "client/cli/file_type.h"
#include "client/cli/progress.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CliTextTest, ListsOfCodecs) {
  EXPECT_THAT(SplitCodecs(""), IsEmpty());
  EXPECT_THAT(SplitCodecs("int4,klt:ultra  auto"),
              ElementsAre("int4", "klt:ultra", "auto"));
  // Commas also separate parameters.
  EXPECT_THAT(SplitCodecs("ecsq:0.5,0.5,int4+zstd,klt:1,value_step=2"),
              ElementsAre("ecsq:0.5,0.5", "int4+zstd", "klt:1,value_step=2"));
  EXPECT_THAT(SplitCodecs("int4,bogus"), ElementsAre("int4,bogus"));
  EXPECT_THAT(SplitCodecs(","), ElementsAre(","));
}

TEST(CliTextTest, NamesOfOutputs) {
  EXPECT_EQ(ArtefactName("a.safetensors"), "a.kvc.safetensors");
  EXPECT_EQ(ArtefactName("a.bin"), "a.bin.kvc.safetensors");
  EXPECT_EQ(RestoredName("a.kvc.safetensors"), "a.safetensors");
  EXPECT_EQ(RestoredName("a.safetensors"), "a.restored.safetensors");
  EXPECT_EQ(RestoredName("a"), "a.restored.safetensors");
  EXPECT_EQ(DefaultOutput(Mode::kCompress, "b/a.safetensors"),
            "b/a.kvc.safetensors");
  for (const char* name : {"b/a.kvc.safetensors", "b/a.safetensors", "b/a"}) {
    EXPECT_EQ(DefaultOutput(Mode::kDecompress, name),
              "b/a.restored.safetensors");
  }
}

TEST(CliTextTest, ColumnsAreAsWideAsTheirCells) {
  Columns columns({Columns::Side::kLeft, Columns::Side::kRight});
  columns.AddRow({"codec", "x"});
  columns.AddRow({"\xC3\xA4", "1.50"});
  columns.AddRow({"failed"});
  EXPECT_EQ(columns.ToString(),
            "codec      x\n"
            "\xC3\xA4       1.50\n"
            "failed\n");
}

TEST(CliTextTest, Sizes) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(999), "999 B");
  EXPECT_EQ(SizeText(1000), "1.0 kB");
  EXPECT_EQ(SizeText(999949), "999.9 kB");
  EXPECT_EQ(SizeText(999950), "1.0 MB");
  EXPECT_EQ(SizeText(2211840), "2.2 MB");
  EXPECT_EQ(SizeText(uint64_t{5} << 50), "5629.5 TB");
}

TEST(CliTextTest, ProgressHasTotalSpeedAndTimeLeft) {
  EXPECT_EQ(ProgressLine(250'000'000, 1'000'000'000, absl::Seconds(5)),
            " 25% [#######                       ] 250.0 of 1000.0 MB  "
            "50.0 MB/s  0:15 left");
  EXPECT_THAT(ProgressLine(1'000'000, 7'200'000'000, absl::Seconds(1)),
              HasSubstr("1.0 MB/s  1:59:59 left"));
  EXPECT_THAT(ProgressLine(8, 8, absl::Seconds(1)),
              testing::EndsWith("0.0 MB/s"));
  EXPECT_EQ(ProgressLine(5'000'000, std::nullopt, absl::Seconds(2)),
            "5.0 MB  2.5 MB/s");
  EXPECT_EQ(ProgressLine(3, 12, absl::Seconds(3), ProgressUnit::kSteps),
            " 25% [#######                       ] 3 of 12 steps  0:09 left");
  EXPECT_EQ(ProgressLine(0, 0, absl::ZeroDuration()).substr(0, 5), "100% ");
}

TEST(CliTextTest, WhatMayBeDamagedIsNotRefused) {
  const std::string file("\x10\0\0\0\0\0\0\0{\"x\":1}", 15);
  std::string length = file;  // or its first character, but not both
  length[7] = '\xff';
  std::string brace = file;
  brace[8] = '\0';
  for (const std::string& start : {std::string(), std::string("short"),
                                   file.substr(0, 8), file, length, brace}) {
    EXPECT_TRUE(CheckFileType(start).ok()) << start;
  }
  length[8] = '\0';
  EXPECT_THAT(CheckFileType(length).message(),
              HasSubstr("binary data of no known type"));
  EXPECT_THAT(CheckFileType("no artefact").message(),
              HasSubstr("the file is text"));
  EXPECT_THAT(CheckFileType(std::string(600, '\0')).message(),
              HasSubstr("zeros from its first byte"));
  const absl::Status status = CheckFileType("GGUF\x03");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(GetErrorDetail(status)->reason, "INVALID_HEADER");
}

}  // namespace
}  // namespace kvcompress::cli
