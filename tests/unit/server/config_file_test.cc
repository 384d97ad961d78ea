// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config.h"

namespace kvcompress {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ConfigFileTest : public ::testing::Test {
 protected:
  ~ConfigFileTest() override {
    unsetenv("KVCOMPRESS_STALL_SECONDS");
    unsetenv("KVCOMPRESS_CONFIG");
    std::filesystem::remove(path_);
  }

  void Write(const std::string& text) const { std::ofstream(path_) << text; }

  std::string ErrorOf(const std::string& text) const {
    Write(text);
    const auto settings = ReadConfigFile(path_);
    EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(settings.status().message());
  }

  absl::StatusOr<CommandLine> Parse(std::vector<std::string> flags) const {
    std::vector<const char*> arguments = {"kv-compressd"};
    for (const std::string& flag : flags) arguments.push_back(flag.c_str());
    return ParseCommandLine(static_cast<int>(arguments.size()),
                            arguments.data());
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "kv-config-", getpid(), ".yaml");
};

TEST_F(ConfigFileTest, ValuesAndLists) {
  Write(
      "# a comment\n"
      "listen: [127.0.0.1:1, 'unix:/run/kv.sock']\n"
      "memory-budget-bytes: 2GiB\n"
      "metrics-listen: ''\n"
      "insecure: true\n");
  const auto settings = ReadConfigFile(path_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->size(), 4);
  EXPECT_THAT(settings->at("listen").values,
              ElementsAre("127.0.0.1:1", "unix:/run/kv.sock"));
  EXPECT_THAT(settings->at("memory-budget-bytes").values, ElementsAre("2GiB"));
  EXPECT_EQ(settings->at("memory-budget-bytes").source,
            absl::StrCat(path_, ":3: memory-budget-bytes"));
  EXPECT_THAT(settings->at("metrics-listen").values, ElementsAre(""));
}

TEST_F(ConfigFileTest, NothingInItIsFine) {
  for (const char* text : {"", "# only a comment\n", "---\n", "{}\n"}) {
    Write(text);
    const auto settings = ReadConfigFile(path_);
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_THAT(*settings, IsEmpty());
  }
}

TEST_F(ConfigFileTest, UnknownKeysAreErrorsWithTheirLine) {
  EXPECT_EQ(ErrorOf("insecure: true\n\nmemory_budget_byte: 1\n"),
            absl::StrCat(path_,
                         ":3: \"memory_budget_byte\" is no option; did you "
                         "mean memory-budget-bytes?"));
  EXPECT_EQ(ErrorOf("zzz: 1\n"),
            absl::StrCat(path_, ":1: \"zzz\" is no option; see --help"));
  // What has no sense in a file is no key either.
  EXPECT_THAT(ErrorOf("config: other.yaml\n"), HasSubstr("is no option"));
  EXPECT_THAT(ErrorOf("check-config: true\n"), HasSubstr("is no option"));
}

TEST_F(ConfigFileTest, OtherShapesAreErrorsWithTheirLine) {
  const auto at = [&](int line, absl::string_view why) {
    return absl::StrCat(path_, ":", line, ": ", why);
  };
  EXPECT_EQ(ErrorOf("- listen\n"),
            at(1, "not a YAML mapping of options to values"));
  EXPECT_EQ(ErrorOf("insecure: true\ninsecure: false\n"),
            at(2, "insecure is given twice"));
  EXPECT_EQ(ErrorOf("\nlog-level:\n"), at(2, "log-level has no value"));
  EXPECT_EQ(ErrorOf("listen: []\n"), at(1, "listen has no value"));
  EXPECT_EQ(ErrorOf("log-level: [a, b]\n"),
            at(1, "log-level takes one value, not a list"));
  EXPECT_EQ(ErrorOf("listen: {a: b}\n"), at(1, "listen must be a plain value"));
  EXPECT_EQ(ErrorOf("listen: [[a]]\n"),
            at(1, "listen must be a list of plain values"));
  EXPECT_EQ(ErrorOf("[a]: b\n"), at(1, "a key must be an option's name"));
  EXPECT_THAT(ErrorOf("insecure: true\n---\ninsecure: true\n"),
              HasSubstr("only one YAML document"));
  EXPECT_THAT(ErrorOf("insecure: true\nlisten: [a\n"),
              AllOf(StartsWith(path_), HasSubstr(": not YAML: ")));
  EXPECT_THAT(ErrorOf("listen: *nothing\n"), HasSubstr(":1: not YAML: "));
}

TEST_F(ConfigFileTest, WhatCannotBeReadIsNamed) {
  const auto missing = ReadConfigFile("/nowhere/kv.yaml");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.status().message()),
              StartsWith("/nowhere/kv.yaml: "));
}

TEST_F(ConfigFileTest, FlagsWinOverVariablesAndThoseOverTheFile) {
  Write("stall-seconds: 1\nmax-call-seconds: 2\nthreads: 3\n");
  setenv("KVCOMPRESS_STALL_SECONDS", "10", 1);
  auto line = Parse({"--config", path_, "--threads=30"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.stall, absl::Seconds(10));
  EXPECT_EQ(line->options.max_call, absl::Seconds(2));
  EXPECT_EQ(line->options.call_threads, 30);

  // A variable that is empty is none.
  setenv("KVCOMPRESS_STALL_SECONDS", "", 1);
  setenv("KVCOMPRESS_CONFIG", path_.c_str(), 1);
  line = Parse({});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.stall, absl::Seconds(1));
  EXPECT_THAT(line->warnings, Not(Contains(HasSubstr("KVCOMPRESS_CONFIG"))));
}

TEST_F(ConfigFileTest, ValuesAreCheckedAsThoseOfFlags) {
  Write("\nstall-seconds: never\n");
  EXPECT_EQ(Parse({"--config", path_}).status().message(),
            absl::StrCat(path_,
                         ":2: stall-seconds: \"never\" is not a number of "
                         "seconds from 0.1 to 86400"));
  Write("listen: 0.0.0.0:1\n");
  EXPECT_THAT(std::string(Parse({"--config", path_}).status().message()),
              HasSubstr("in plain text"));
  EXPECT_THAT(
      std::string(Parse({"--config", "/nowhere/kv.yaml"}).status().message()),
      StartsWith("--config: /nowhere/kv.yaml: "));
}

}  // namespace
}  // namespace kvcompress
