// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/option_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kvcompress/codec.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

using ::testing::HasSubstr;

struct Values {
  double share = -1;
  int group = -1;
  bool exact = false;
  int most = -1;
};

// An option of every kind, with a preset or without.
OptionSchema<Values> Schema(
    std::vector<OptionSchema<Values>::Preset> presets = {}) {
  return OptionSchema<Values>(
      "codec",
      {{{.name = "share",
         .type = CodecOption::Type::kDecimal,
         .least = 0.05,
         .most = 8,
         .default_value = 0.5,
         .always_written = true},
        [](double value, Values* out) { out->share = value; }},
       {{.name = "group", .values = {32, 64}, .default_value = 64},
        [](double value, Values* out) {
          out->group = static_cast<int>(value);
        }},
       {{.name = "exact",
         .type = CodecOption::Type::kBoolean,
         .default_value = 0},
        [](double value, Values* out) { out->exact = value != 0; }},
       {{.name = "most", .most = 128},
        [](double value, Values* out) {
          out->most = static_cast<int>(value);
        }}},
      std::move(presets));
}

Values Parsed(absl::string_view text) {
  const auto parameters = Schema().Parse(text);
  EXPECT_TRUE(parameters.ok()) << parameters.status();
  return parameters.ok() ? parameters->As<Values>() : Values();
}

std::string Text(absl::string_view text) {
  return std::string(Schema().Parse(text)->text());
}

std::string Refusal(absl::string_view text) {
  const absl::Status status = Schema().Parse(text).status();
  EXPECT_EQ(GetErrorDetail(status)->reason, "INVALID_CODEC_OPTION");
  EXPECT_EQ(GetErrorDetail(status)->field, "options.codec");
  return std::string(status.message());
}

TEST(OptionSchema, ReadsValuesInOrderAndByName) {
  const Values none = Parsed("");
  EXPECT_EQ(none.share, 0.5);
  EXPECT_EQ(none.group, 64);
  EXPECT_FALSE(none.exact);
  EXPECT_EQ(none.most, -1);
  EXPECT_EQ(Parsed("0.05").share, 0.05);
  EXPECT_EQ(Parsed("8,32").group, 32);
  EXPECT_EQ(Parsed("group=32").group, 32);
  EXPECT_TRUE(Parsed("1,exact=true").exact);
  EXPECT_EQ(Parsed("most=128,group=32").most, 128);
  EXPECT_EQ(Parsed("0.1234").share, 0.1234);
}

TEST(OptionSchema, WritesOneCanonicalText) {
  EXPECT_EQ(Text(""), "0.5");
  EXPECT_EQ(Text("share=0.5"), "0.5");
  EXPECT_EQ(Text("group=32,share=2"), "2,32");
  EXPECT_EQ(Text("most=3,exact=true"), "0.5,exact=true,most=3");
  EXPECT_EQ(Text("1,64"), "1,64");
  for (const char* text : {"", "2", "2,32", "most=3", "exact=false,group=32"}) {
    EXPECT_EQ(Text(Text(text)), Text(text)) << text;
  }
}

TEST(OptionSchema, SaysWhatWhereAndWhatToDo) {
  const std::string remedy =
      "; it takes share (a number from 0.05 to 8 with at most four digits "
      "after the point; default 0.5), group (32 or 64; default 64), exact "
      "(true or false; default false), most (an integer from 0 to 128)";
  EXPECT_EQ(Refusal("9"),
            "codec: share is \"9\", but must be a number from 0.05 to 8 with "
            "at most four digits after the point" +
                remedy);
  EXPECT_EQ(Refusal("1,48"),
            "codec: group is \"48\", but must be 32 or 64" + remedy);
  EXPECT_EQ(Refusal("exact=1"),
            "codec: exact is \"1\", but must be true or false" + remedy);
  EXPECT_EQ(
      Refusal("most=129"),
      "codec: most is \"129\", but must be an integer from 0 to 128" + remedy);
  EXPECT_EQ(Refusal("size=1"), "codec has no option \"size\"" + remedy);
  EXPECT_EQ(Refusal("low"), "codec has no preset \"low\"" + remedy);
  EXPECT_EQ(Refusal("1,share=2"), "codec: share is given twice" + remedy);
  EXPECT_EQ(
      Refusal("group=32,1"),
      "codec: the value \"1\" without a name comes after one with" + remedy);
  EXPECT_EQ(
      Refusal("1,32,true"),
      "codec has no option for the value \"true\" at position 3" + remedy);
  const auto none = ParseOptions("plain", {}, {}, "1");
  EXPECT_EQ(none.status().message(),
            "plain has no option for the value \"1\" at position 1; it takes "
            "no options");
}

TEST(OptionSchema, RefusesWhatIsNoNumberOfItsRange) {
  for (const char* text :
       {",",         "1,",       ",64",        "-1",     "-0.5",   "0.12345",
        "nan",       "inf",      "1_0",        "0x1",    "1e",     "1e9",
        " 1",        "1 ",       "9999999999", "0.0001", "share=", "=1",
        "share=1=1", "most=1.5", "most=1e-1"}) {
    EXPECT_FALSE(Schema().Parse(text).ok()) << text;
  }
}

// ecsq:1.0,1.0 was once refused.
TEST(OptionSchema, SpellingsOfANumberHaveOneCanonicalText) {
  for (const char* text : {"0.50", ".5", "00.5", "5e-1", "+0.5"}) {
    EXPECT_EQ(Text(text), "0.5") << text;
  }
  for (const char* text : {"1.0", "1.", "01", "1e0", "1.0000"}) {
    EXPECT_EQ(Text(text), "1") << text;
  }
  EXPECT_EQ(Text("0.1230,064"), "0.123,64");
  EXPECT_EQ(Text("most=0128"), "0.5,most=128");
}

TEST(OptionSchema, APresetStandsAloneAndTheFirstIsTheDefault) {
  const auto schema =
      Schema({{"fine", {.share = 7}}, {"coarse", {.group = 1}}});
  EXPECT_EQ(schema.Parse("")->text(), "fine");
  EXPECT_EQ(schema.Parse("fine")->As<Values>().share, 7);
  EXPECT_EQ(schema.Parse("coarse")->As<Values>().group, 1);
  EXPECT_EQ(schema.Parse("2")->text(), "2");
  EXPECT_THAT(
      std::string(schema.Parse("fine,group=32").status().message()),
      HasSubstr("codec: the preset \"fine\" stands alone, without other values"
                "; it takes share"));
  EXPECT_THAT(std::string(schema.Parse("x").status().message()),
              HasSubstr(", or a preset: fine or coarse"));
}

TEST(OptionSchema, WhatIsRequiredMustBeThere) {
  const OptionSchema<Values> schema(
      "codec", {{{.name = "share", .most = 8, .required = true},
                 [](double value, Values* out) { out->share = value; }}});
  EXPECT_EQ(schema.Parse("").status().message(),
            "codec: share is missing, which must be an integer from 0 to 8; it "
            "takes share (an integer from 0 to 8)");
  EXPECT_EQ(schema.Parse("8")->As<Values>().share, 8);
}

// What is taken is read again from its canonical text, as a caller writes it
// and as a manifest has it; what is not is refused by name.
void CheckAny(const std::string& text) {
  const absl::StatusOr<CodecSpec> spec = ParseCodec(text);
  if (!spec.ok()) {
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(GetErrorDetail(spec.status())->field, "options.codec") << text;
    return;
  }
  const std::string canonical = spec->ToString();
  const absl::StatusOr<CodecSpec> again = ParseCodec(canonical);
  ASSERT_TRUE(again.ok()) << text << " gave " << canonical;
  EXPECT_EQ(again->ToString(), canonical) << text;
  EXPECT_EQ(again->codec, spec->codec) << text;
  const absl::StatusOr<CodecSpec> stored =
      ParseManifestField(spec->ManifestField());
  EXPECT_EQ(stored.ok(), spec->codec->stored()) << text;
  if (stored.ok()) {
    EXPECT_EQ(stored->ToString(), canonical) << text;
  }
}

TEST(CodecStrings, RandomTextIsReadOrRefused) {
  const std::vector<std::string> parts = {"int4",
                                          "int8",
                                          "klt",
                                          "ecsq",
                                          "sparse",
                                          "auto",
                                          "lossless",
                                          ":",
                                          ":",
                                          ",",
                                          ",",
                                          "+",
                                          "zstd",
                                          "lz4",
                                          "=",
                                          "32",
                                          "64",
                                          "0.5",
                                          "1",
                                          "0.52",
                                          "group_size=32",
                                          "max",
                                          "contract",
                                          "ultra",
                                          "0",
                                          "x",
                                          "-",
                                          "sparsity=0.25",
                                          ".",
                                          "weighting=0.3",
                                          "key_step=1",
                                          "value_step=2",
                                          " ",
                                          "\n",
                                          "\xff"};
  std::mt19937 random(1);
  size_t taken = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    if (i % 2 == 0) text = parts[random() % 7] + ":";
    for (size_t size = random() % 8; size > 0; --size) {
      text += parts[random() % parts.size()];
    }
    taken += ParseCodec(text).ok() ? 1 : 0;
    CheckAny(text);
  }
  EXPECT_GT(taken, 500);
}

TEST(CodecStrings, AreReadInOneWay) {
  const auto canonical = [](absl::string_view text) {
    const auto spec = ParseCodec(text);
    return spec.ok() ? spec->ToString() : std::string(spec.status().message());
  };
  EXPECT_EQ(canonical("int4"), "int4:64");
  EXPECT_EQ(canonical("int4:group_size=32+zstd"), "int4:32+zstd");
  EXPECT_EQ(canonical("sparse:0.25"), "sparse:0.25,64");
  EXPECT_EQ(canonical("sparse:group_size=32"), "sparse:0.5,32");
  EXPECT_EQ(canonical("klt"), "klt:contract");
  EXPECT_EQ(canonical("klt:1,2,weighting=0.3"), "klt:1,2,weighting=0.3");
  EXPECT_EQ(canonical("klt:1,2,96,0"), "klt:1,2,96,0");
  EXPECT_EQ(canonical("lossless+lz4"), "lossless+lz4");
  EXPECT_EQ(canonical("auto+zstd"), "auto+zstd");
  EXPECT_EQ(canonical("int4:"),
            "parameters are missing after the colon of \"int4:\"; int4 takes "
            "group_size (32, 64 or 128; default 64)");
  EXPECT_EQ(canonical("int4+zstd:64"),
            "unknown byte compressor \"zstd:64\"; this build has: lz4, zstd; "
            "one may stand at the end: int4:64+zstd");
  EXPECT_THAT(canonical("int3"),
              HasSubstr("unknown codec \"int3\"; this build has: int4, "));
  EXPECT_EQ(canonical("int4:" + std::string(300, '1')),
            "the codec string has 305 bytes, but at most 256 are read: "
            "NAME[:PARAMETERS][+BYTE_COMPRESSOR]");
}

}  // namespace
}  // namespace kvcompress
