// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Every rule of the format, one by one, on the smallest header that breaks it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

constexpr char kTensor[] =
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";

std::string Message(const std::string& json) {
  const absl::Status status = ParseSafetensorsHeader(json).status();
  if (status.ok()) return "OK";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(GetErrorDetail(status)) << status;
  return std::string(status.message());
}

TEST(ParseHeader, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(Message("{}"), "OK");
  EXPECT_EQ(Message("{}   \n\t "), "OK");
  EXPECT_EQ(Message(R"({"__metadata__":{}})"), "OK");
  EXPECT_EQ(Message(std::string("{") + kTensor + "}"), "OK");
  EXPECT_EQ(Message(R"({"s":{"shape":[],"data_offsets":[0,4],"dtype":"F32"}})"),
            "OK");
  EXPECT_EQ(
      Message(R"({"":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}})"),
      "OK");
}

TEST(AppendJsonString, HasOneFormForEveryByte) {
  std::string json;
  AppendJsonString("", &json);
  EXPECT_EQ(json, R"("")");
  json.clear();
  AppendJsonString(absl::string_view("\0\x01\b\t\n\x0b\f\r\x1f", 9), &json);
  EXPECT_EQ(json, R"("\u0000\u0001\b\t\n\u000b\f\r\u001f")");
  json.clear();
  AppendJsonString("a \"\\/~\x7f \xc3\xa4 \xf0\x9f\x98\x80", &json);
  EXPECT_EQ(json, "\"a \\\"\\\\/~\x7f \xc3\xa4 \xf0\x9f\x98\x80\"");
}

TEST(ParseHeader, KeepsTheOrderOfTheData) {
  const auto header = ParseSafetensorsHeader(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
      R"("e2":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
      R"("e1":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
      R"("__metadata__":{"z":"1","y":"2"}})");
  ASSERT_TRUE(header.ok());
  std::string order;
  for (const auto& entry : header->tensors) order += entry.spec.name + " ";
  EXPECT_EQ(order, "a e2 e1 b ");
  EXPECT_EQ(header->metadata[0].first, "z");
  EXPECT_EQ(header->data_size, 3);
}

struct Case {
  const char* name;
  std::string json;
  const char* message;
};

// For the names of tests in reports.
void PrintTo(const Case& bad, std::ostream* out) { *out << bad.name; }

class BadHeader : public ::testing::TestWithParam<Case> {};

TEST_P(BadHeader, IsRefused) {
  EXPECT_THAT(Message(GetParam().json),
              ::testing::HasSubstr(GetParam().message));
}

std::string One(const std::string& fields) {
  return "{\"a\":{" + fields + "}}";
}
std::string Offsets(const std::string& list, const std::string& shape = "2") {
  return One("\"dtype\":\"U8\",\"shape\":[" + shape +
             "],\"data_offsets\":" + list);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, BadHeader,
    ::testing::Values(
        Case{"not_json", "{", "invalid JSON"},
        Case{"array", "[]", "an array is not allowed"},
        Case{"number", "1", "a number is not allowed"},
        Case{"garbage_after", "{}x", "invalid JSON"},
        Case{"nul_padding", std::string("{}\0\0", 4), "invalid JSON"},
        Case{"second_object", "{}{}", "invalid JSON"},
        Case{"bad_utf8", "{\"\xff\":1}", "invalid JSON"},
        Case{"lone_surrogate", "{\"\\ud800\":1}", "invalid JSON"},
        Case{"comment", "{/* */}", "invalid JSON"},
        Case{"duplicate_tensor",
             std::string("{") + kTensor + "," + kTensor + "}",
             "duplicate key \"a\""},
        Case{"duplicate_field", One("\"dtype\":\"U8\",\"dtype\":\"U8\""),
             "duplicate key \"dtype\""},
        Case{"duplicate_metadata", R"({"__metadata__":{},"__metadata__":{}})",
             "duplicate key"},
        Case{"duplicate_metadata_key", R"({"__metadata__":{"k":"1","k":"2"}})",
             "duplicate key \"k\""},
        Case{"metadata_number", R"({"__metadata__":{"k":1}})",
             "a number is not allowed"},
        Case{"metadata_nested", R"({"__metadata__":{"k":{}}})",
             "an object is not allowed"},
        Case{"metadata_null", R"({"__metadata__":null})",
             "null is not allowed"},
        Case{"metadata_string", R"({"__metadata__":"x"})",
             "a string is not allowed"},
        Case{"tensor_is_string", R"({"a":"x"})", "a string is not allowed"},
        Case{"extra_field", One("\"dtype\":\"U8\",\"x\":1"), "unknown field"},
        Case{"no_dtype", One("\"shape\":[2],\"data_offsets\":[0,2]"),
             "\"dtype\" is missing"},
        Case{"no_shape", One("\"dtype\":\"U8\",\"data_offsets\":[0,2]"),
             "\"shape\" is missing"},
        Case{"no_offsets", One("\"dtype\":\"U8\",\"shape\":[2]"),
             "\"data_offsets\" is missing"},
        Case{"unknown_dtype", One("\"dtype\":\"F128\""),
             "unsupported data type: F128"},
        Case{"dtype_number", One("\"dtype\":1"), "a number is not allowed"},
        Case{"shape_number", One("\"shape\":2"), "a number is not allowed"},
        Case{"shape_negative", One("\"shape\":[-1]"), "negative"},
        Case{"shape_float", One("\"shape\":[1.0]"), "no 64-bit integer"},
        Case{"shape_huge", One("\"shape\":[99999999999999999999]"),
             "no 64-bit integer"},
        Case{"shape_nested", One("\"shape\":[[1]]"), "an array is not allowed"},
        Case{"shape_wraps_to_0",
             Offsets("[0,0]", "4294967296,4294967296,4294967296"), "overflows"},
        Case{"offsets_one", Offsets("[0]"), "1 numbers instead of 2"},
        Case{"offsets_three", Offsets("[0,2,4]"), "3 numbers instead of 2"},
        Case{"offsets_reversed", Offsets("[2,0]"), "do not hold"},
        Case{"offsets_wrong_size", Offsets("[0,3]"), "do not hold"},
        Case{"offsets_wrap", Offsets("[18446744073709551615,1]"),
             "do not hold"},
        Case{"hole_at_start", Offsets("[1,3]"), "a hole"},
        Case{"overlap",
             R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
             "an overlap"},
        Case{"hole",
             R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
             "a hole"},
        Case{"deep", "{\"a\":" + std::string(100000, '['),
             "an array is not allowed"}),
    [](const auto& info) { return info.param.name; });

TEST(ParseHeader, NamesTensorAndOffset) {
  const absl::Status status = ParseSafetensorsHeader(Offsets("[1,3]")).status();
  const ErrorDetail detail = *GetErrorDetail(status);
  EXPECT_EQ(detail.tensor, "a");
  EXPECT_EQ(detail.offset, 8 + Offsets("[1,3]").size());
  EXPECT_EQ(
      GetErrorDetail(ParseSafetensorsHeader("{\"a\" 1}").status())->offset,
      8 + 5);
}

TEST(SerializeHeader, ComesBackAndIsAligned) {
  const std::string file = testing::MakeFile(
      {{{.name = "\"ü\\\n", .dtype = DType::kF32, .shape = {1, 2}},
        std::string(8, 'x')},
       {{.name = "scalar", .dtype = DType::kBF16}, "yy"}},
      {{"k", "v\""}});
  SafetensorsHeaderReader reader(kMaxSafetensorsHeader);
  absl::string_view bytes = file;
  ASSERT_TRUE(reader.Append(&bytes).ok());
  ASSERT_TRUE(reader.done());
  EXPECT_EQ(reader.raw().size() % 8, 0);
  EXPECT_EQ(bytes.size(), 10);
  const auto header = ParseSafetensorsHeader(reader.json());
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors[0].spec.name, "\"ü\\\n");
  EXPECT_TRUE(header->tensors[1].spec.shape.empty());
  EXPECT_EQ(header->metadata[0].second, "v\"");
}

TEST(HeaderReader, TakesAnyCut) {
  const std::string file = testing::RawFile("{}", "data");
  for (size_t cut = 0; cut <= file.size(); ++cut) {
    SafetensorsHeaderReader reader(100);
    absl::string_view first = absl::string_view(file).substr(0, cut);
    absl::string_view second = absl::string_view(file).substr(cut);
    ASSERT_TRUE(reader.Append(&first).ok());
    ASSERT_TRUE(reader.Append(&second).ok());
    EXPECT_TRUE(reader.done());
    EXPECT_EQ(first.size() + second.size(), 4);
  }
}

TEST(HeaderReader, RefusesLengthsWithoutWaitingForTheBytes) {
  const auto refuse = [](uint64_t length, uint64_t limit) {
    std::string bytes(8, '\0');
    for (int i = 0; i < 8; ++i, length >>= 8) {
      bytes[i] = static_cast<char>(length);
    }
    SafetensorsHeaderReader reader(limit);
    absl::string_view view = bytes;
    return reader.Append(&view).code();
  };
  const uint64_t most = kMaxSafetensorsHeader;
  EXPECT_EQ(refuse(0, most), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse(1, most), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse(2, most), absl::StatusCode::kOk);
  EXPECT_EQ(refuse(most, most), absl::StatusCode::kOk);
  EXPECT_EQ(refuse(most + 1, most), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse(~uint64_t{0}, most), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse(~uint64_t{0} - 7, most), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse(101, 100), absl::StatusCode::kOutOfRange);
}

TEST(HeaderReader, SaysWhereTheInputEnded) {
  SafetensorsHeaderReader reader(100);
  EXPECT_EQ(GetErrorDetail(reader.TruncatedError())->offset, 0);
  absl::string_view bytes("\x05\0\0\0\0\0\0\0{", 9);
  ASSERT_TRUE(reader.Append(&bytes).ok());
  EXPECT_EQ(GetErrorDetail(reader.TruncatedError())->offset, 9);
}

}  // namespace
}  // namespace kvcompress
