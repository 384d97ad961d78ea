// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/flags.h"

#include <cstdlib>

#include "client/cli/help.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcompress/codec.h"

namespace kvcompress::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Flags Parse(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Flags> flags = ParseFlags(arguments);
  EXPECT_TRUE(flags.ok()) << flags.status();
  return flags.ok() ? *flags : Flags();
}

std::string Error(const std::vector<std::string>& arguments) {
  return std::string(ParseFlags(arguments).status().message());
}

TEST(FlagsTest, TheCommandsOfTheGoProgram) {
  const Flags compress = Parse({"-input", "a", "-output", "b", "-group-size",
                                "128", "-sparsity", "0.5", "-verbose"});
  EXPECT_EQ(compress.mode, Mode::kCompress);
  EXPECT_EQ(compress.input, "a");
  EXPECT_EQ(compress.output, "b");
  EXPECT_EQ(compress.codec, "sparse:group_size=128,sparsity=0.5");
  EXPECT_TRUE(compress.verbose);
  EXPECT_EQ(Parse({"-input", "a", "-metrics-only"}).mode, Mode::kMeasure);
  EXPECT_EQ(Parse({"-decompress", "-input", "a", "-output", "b"}).mode,
            Mode::kDecompress);
}

TEST(FlagsTest, TheSyntaxOfGo) {
  const Flags flags = Parse({"--input=a=b", "-output=x", "--output", "-",
                             "-verbose", "-verbose=false"});
  EXPECT_EQ(flags.input, "a=b");
  EXPECT_EQ(flags.output, "-");
  EXPECT_FALSE(flags.verbose);
  // A value is a value, whatever it looks like.
  EXPECT_EQ(Parse({"-metrics-only", "-input", "-verbose"}).input, "-verbose");
  EXPECT_EQ(Parse({"-metrics-only", "-input", "a", "-min-snr-db", "-3"})
                .thresholds->min_snr_db(),
            -3);
}

TEST(FlagsTest, TheMessagesOfTheGoProgram) {
  EXPECT_EQ(Error({}), "-input is required");
  EXPECT_EQ(Error({"-output", "b"}), "-input is required");
  EXPECT_EQ(Error({"-input", "a"}), "-output is required");
  EXPECT_EQ(Error({"-input", "a", "-decompress"}), "-output is required");
  EXPECT_EQ(Error({"-input"}), "flag needs an argument: -input");
  EXPECT_EQ(Error({"-inptu", "a"}),
            "flag provided but not defined: -inptu; did you mean -input?");
  EXPECT_EQ(Error({"-bogus", "a"}), "flag provided but not defined: -bogus");
  EXPECT_EQ(Error({"-input", "a", "-output", "b", "-group-size", "x"}),
            "invalid value \"x\" for flag -group-size: parse error");
}

TEST(FlagsTest, ValuesOutOfRange) {
  const auto error = [](const std::string& flag) {
    return Error({"-input", "a", "-output", "b", flag});
  };
  EXPECT_THAT(error("-group-size=48"), HasSubstr("must be 32, 64 or 128"));
  for (const char* sparsity : {"-0.1", "1.01", "nan"}) {
    EXPECT_THAT(error(std::string("-sparsity=") + sparsity),
                HasSubstr("must be from 0 to 1"));
  }
  EXPECT_THAT(error("-min-snr-db="), HasSubstr("finite number"));
  EXPECT_THAT(error("-min-snr-db=inf"), HasSubstr("finite number"));
  EXPECT_THAT(error("-progress=maybe"), HasSubstr("auto, always or never"));
  EXPECT_THAT(error("-verbose=maybe"), HasSubstr("maybe"));
  EXPECT_THAT(error("-label=x"), HasSubstr("KEY=VALUE"));
  EXPECT_EQ(error("stray"), "unexpected argument: stray");
}

TEST(FlagsTest, ShorthandsComposeTheCodecString) {
  const auto codec = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-metrics-only", "-input", "a"});
    return Parse(arguments).codec;
  };
  EXPECT_EQ(codec({}), "int4");
  EXPECT_EQ(codec({"-codec", "klt:ultra+zstd"}), "klt:ultra+zstd");
  EXPECT_EQ(codec({"-codec", "klt", "-preset", "ultra"}), "klt:ultra");
  EXPECT_EQ(codec({"-preset", "high"}), "auto:high");
  EXPECT_EQ(codec({"-group-size", "32", "-last-stage", "zstd"}),
            "int4:group_size=32+zstd");
  EXPECT_EQ(codec({"-sparsity", "0"}), "int4");
  EXPECT_EQ(codec({"-sparsity", "0", "-codec", "sparse"}), "sparse:sparsity=0");
  EXPECT_EQ(codec({"-sparsity", "0.50"}), "sparse:sparsity=0.5");
  EXPECT_EQ(codec({"-sparsity", "1e-5"}), "sparse:sparsity=0.00001");
  // What is there stays, and what is added goes before the byte compressor.
  EXPECT_EQ(codec({"-sparsity", "1", "-codec", "sparse:group_size=32+lz4"}),
            "sparse:group_size=32,sparsity=1+lz4");
  EXPECT_EQ(codec({"-codec", "int4+lz4", "-last-stage", "zstd"}),
            "int4+lz4+zstd");
  EXPECT_THAT(Error({"-metrics-only", "-input", "a", "-codec", "int8:32",
                     "-sparsity", "0.5"}),
              HasSubstr("-sparsity needs -codec sparse"));
}

TEST(FlagsTest, UsageHasEveryCodecWithItsOptions) {
  const std::string usage = Usage();
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& traits = codec->traits();
    EXPECT_THAT(usage, HasSubstr(traits.description));
    for (const CodecOption& option : traits.options) {
      EXPECT_THAT(usage, HasSubstr(option.name + ": " + option.description +
                                   ": " + option.Range()));
    }
    for (const std::string& preset : traits.presets) {
      EXPECT_THAT(usage, HasSubstr(preset));
    }
  }
}

TEST(FlagsTest, Modes) {
  EXPECT_EQ(Parse({"-metrics-only", "-input", "a"}).metrics,
            v1::METRICS_LEVEL_UNSPECIFIED);
  EXPECT_EQ(
      Parse({"-metrics-only", "-input", "a", "-metrics", "basic"}).metrics,
      v1::METRICS_LEVEL_BASIC);
  EXPECT_EQ(Parse({"-info", "f"}).mode, Mode::kInfo);
  EXPECT_EQ(Parse({"-info", "f"}).input, "f");
  EXPECT_EQ(Parse({"-verify", "f"}).mode, Mode::kVerify);
  EXPECT_EQ(Parse({"-help"}).mode, Mode::kHelp);
  EXPECT_EQ(Parse({"-h"}).mode, Mode::kHelp);
  EXPECT_EQ(Parse({"-version"}).mode, Mode::kVersion);
  EXPECT_THAT(Error({"-info", "f", "-verify", "g"}),
              HasSubstr("cannot be combined"));
  EXPECT_THAT(Error({"-info", "f", "-input", "g"}), HasSubstr("-input"));
}

TEST(FlagsTest, FlagsThatWouldDoNothingAreRefused) {
  EXPECT_EQ(Error({"-input", "a", "-output", "b", "-tokens", "0:1"}),
            "-tokens needs -decompress");
  EXPECT_THAT(Error({"-decompress", "-input", "a", "-output", "b",
                     "-min-snr-db", "20"}),
              HasSubstr("-min-snr-db needs"));
  // But not those that the Go program took.
  EXPECT_EQ(Parse({"-decompress", "-input", "a", "-output", "b", "-group-size",
                   "32", "-sparsity", "0"})
                .mode,
            Mode::kDecompress);
}

TEST(FlagsTest, Selections) {
  const Flags flags =
      Parse({"-decompress", "-input", "a", "-output", "b", "-tensors", "[ab]",
             "-tensors", "*_key", "-tokens", "3:9", "-label", "model=x=y",
             "-label", "tenant="});
  EXPECT_THAT(flags.tensors, ElementsAre("[ab]", "*_key"));
  EXPECT_EQ(flags.tokens, std::pair(uint64_t{3}, uint64_t{9}));
  EXPECT_THAT(flags.labels,
              ElementsAre(Pair("model", "x=y"), Pair("tenant", "")));
  for (const char* tokens : {"3", "3:", ":3", "a:b", "1:2:3", "-1:2", ""}) {
    EXPECT_THAT(Error({"-decompress", "-input", "a", "-output", "b", "-tokens",
                       tokens}),
                HasSubstr("FIRST:END"))
        << tokens;
  }
}

TEST(FlagsTest, ProgressMayStandAlone) {
  const auto progress = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-metrics-only"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Parse(arguments).progress;
  };
  EXPECT_EQ(progress({"-input", "a"}), ProgressMode::kAuto);
  EXPECT_EQ(progress({"-progress", "-input", "a"}), ProgressMode::kAlways);
  EXPECT_EQ(progress({"-progress", "never", "-input", "a"}),
            ProgressMode::kNever);
  EXPECT_EQ(progress({"-progress=auto", "-input", "a"}), ProgressMode::kAuto);
}

TEST(FlagsTest, TheServerFromTheEnvironment) {
  setenv("KVCOMPRESS_SERVER", "host:1", 1);
  EXPECT_EQ(Parse({"-info", "f"}).server, "host:1");
  EXPECT_EQ(Parse({"-info", "f", "-server", "unix:x"}).server, "unix:x");
  EXPECT_EQ(Parse({"-info", "f", "-server="}).server, "");
  unsetenv("KVCOMPRESS_SERVER");
  EXPECT_EQ(Parse({"-info", "f"}).server, "");
}

TEST(FlagsTest, Threads) {
  EXPECT_EQ(Parse({"-input", "a", "-output", "b"}).threads, 0);
  EXPECT_EQ(Parse({"-input", "a", "-output", "b", "-threads", "3"}).threads, 3);
  for (const char* bad : {"0", "1025", "-1", "few"}) {
    EXPECT_THAT(Error({"-input", "a", "-output", "b", "-threads", bad}),
                HasSubstr("threads"));
  }
  EXPECT_THAT(Error({"-info", "a", "-threads", "2"}),
              HasSubstr("-threads needs"));
  EXPECT_THAT(
      Error({"-verify", "a", "-threads", "2", "-server", "127.0.0.1:1"}),
      HasSubstr("cannot be combined"));
}

TEST(FlagsTest, FilesAreArguments) {
  const Flags flags = Parse({"a", "-output", "out/", "b", "--", "-c"});
  EXPECT_THAT(flags.inputs, ElementsAre("a", "b", "-c"));
  EXPECT_EQ(flags.input, "a");
  EXPECT_TRUE(flags.several);
  EXPECT_FALSE(Parse({"-input", "a", "-output", "b"}).several);
  EXPECT_THAT(Parse({"-info", "a", "b"}).inputs, ElementsAre("a", "b"));
  EXPECT_THAT(Parse({"-compare", "a", "b"}).inputs, ElementsAre("a", "b"));
  EXPECT_EQ(Error({"-input", "a", "b"}), "unexpected argument: b");
}

TEST(FlagsTest, OutputsThatNobodyNames) {
  // The name follows from that of the input, later; of a stream there is none.
  EXPECT_EQ(Parse({"a"}).output, "");
  EXPECT_EQ(Parse({"-input", "a", "-codec", "auto"}).output, "");
  EXPECT_EQ(Parse({"-"}).output, "-");
  EXPECT_EQ(Parse({"-", "a"}).output, "");
  EXPECT_EQ(Error({"a", "-o", ""}), "-output is required");
}

TEST(FlagsTest, BlocksOfAProfile) {
  EXPECT_EQ(Parse({"a", "-profile", "p", "-block-tokens", "64"}).block_tokens,
            64);
  EXPECT_EQ(Parse({"a"}).block_tokens, 0);
  EXPECT_THAT(Error({"a", "-block-tokens", "8"}),
              HasSubstr("must be from 16 to 256"));
  EXPECT_THAT(Error({"-d", "a", "-block-tokens", "64"}),
              HasSubstr("-block-tokens needs compression"));
}

TEST(FlagsTest, FlagsOfOneLetter) {
  const Flags flags = Parse({"-d", "a", "-o", "b"});
  EXPECT_EQ(flags.mode, Mode::kDecompress);
  EXPECT_EQ(flags.output, "b");
  EXPECT_EQ(Parse({"-d=false", "-o=-", "a"}).output, "-");
  EXPECT_EQ(Error({"a", "-o"}), "flag needs an argument: -o");
  // The Go program had none.
  EXPECT_FALSE(Parse({"-input", "a", "-o", "b"}).force);
}

TEST(FlagsTest, CommandsAreWhatFlagsAre) {
  EXPECT_EQ(Parse({"compress", "a"}).mode, Mode::kCompress);
  EXPECT_EQ(Parse({"restore", "a"}).mode, Mode::kDecompress);
  EXPECT_EQ(Parse({"measure", "a"}).mode, Mode::kMeasure);
  EXPECT_EQ(Parse({"info", "a"}).mode, Mode::kInfo);
  EXPECT_EQ(Parse({"verify", "-input", "a"}).input, "a");
  const Flags compare = Parse({"compare", "-threads", "2", "a", "b"});
  EXPECT_EQ(compare.mode, Mode::kCompare);
  EXPECT_THAT(compare.inputs, ElementsAre("a", "b"));
  const Flags train = Parse({"train", "a", "-o", "p", "-model-label", "m"});
  EXPECT_EQ(train.mode, Mode::kTrain);
  EXPECT_EQ(train.output, "p");
  EXPECT_THAT(train.files, ElementsAre("a"));
  EXPECT_FALSE(Parse({"compress", "-input", "a", "-output", "b"}).force);
  // A command is the first word, and nothing else is one.
  EXPECT_EQ(Parse({"-o", "b", "compare"}).mode, Mode::kCompress);
  EXPECT_THAT(Error({"compress", "a", "-d"}), HasSubstr("says what is done"));
  EXPECT_THAT(Error({"verify"}), HasSubstr("verify needs a file"));
  EXPECT_THAT(Error({"verfy", "a"}), HasSubstr("did you mean verify?"));
  EXPECT_EQ(Parse({"verify", "-help"}).command, "verify");
}

TEST(FlagsTest, TheHelpOfACommandIsShort) {
  const std::string usage = Usage("verify");
  EXPECT_THAT(usage, HasSubstr("--threads"));
  EXPECT_THAT(usage, testing::Not(HasSubstr("--codec")));
  EXPECT_LT(usage.size(), Usage().size() / 3);
}

TEST(FlagsTest, InvocationsOfTheGoProgram) {
  const auto seed = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-input", "a", "-output", "b"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Flags flags = Parse(arguments);
    EXPECT_EQ(flags.format == Format::kJson, flags.force);
    return flags.force;
  };
  EXPECT_TRUE(seed({}));
  EXPECT_TRUE(seed({"-group-size=32", "--sparsity", "0.5", "-verbose"}));
  EXPECT_TRUE(seed({"-decompress"}));
  EXPECT_FALSE(seed({"-codec", "int4"}));
  EXPECT_FALSE(Parse({"a", "-output", "b"}).force);
  EXPECT_EQ(Error({"-input", "a"}), "-output is required");
  EXPECT_EQ(Error({}), "-input is required");
  setenv("KVCOMPRESS_SERVER", "host:1", 1);
  EXPECT_TRUE(seed({}));
  unsetenv("KVCOMPRESS_SERVER");
}

TEST(FlagsTest, Comparison) {
  const Flags flags = Parse({"-compare", "a", "-codec", "int4 auto"});
  EXPECT_EQ(flags.mode, Mode::kCompare);
  EXPECT_THAT(flags.codecs, ElementsAre("int4", "auto"));
  EXPECT_THAT(Parse({"-compare", "a"}).codecs, testing::IsEmpty());
  for (const char* flag : {"-output=b", "-preset=high", "-group-size=32",
                           "-last-stage=zstd", "-label=a=b", "-tokens=0:1"}) {
    EXPECT_NE(Error({"-compare", "a", flag}), "") << flag;
  }
}

TEST(FlagsTest, Printing) {
  EXPECT_EQ(Parse({"-info", "a"}).format, Format::kAuto);
  EXPECT_EQ(Parse({"-info", "a", "-format", "table"}).format, Format::kTable);
  EXPECT_EQ(Parse({"-info", "a", "-quiet"}).progress, ProgressMode::kNever);
  EXPECT_EQ(Error({"-info", "a", "-quiet", "-progress"}),
            "-quiet and -progress cannot be combined");
  EXPECT_TRUE(Parse({"a", "-output", "b", "-force"}).force);
  EXPECT_EQ(Parse({"-completion", "zsh"}).shell, "zsh");
  EXPECT_EQ(Parse({"-man"}).mode, Mode::kManual);
}

TEST(FlagsTest, UsageNamesEveryFlag) {
  const std::string usage = Usage();
  for (const char* flag :
       {"input", "output", "group-size", "sparsity", "decompress",
        "metrics-only", "verbose", "server", "codec", "preset", "min-snr-db",
        "progress", "info", "verify", "tensors", "tokens", "label"}) {
    EXPECT_THAT(usage, HasSubstr(std::string("--") + flag));
  }
}

}  // namespace
}  // namespace kvcompress::cli
