// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/error.h"

#include <gtest/gtest.h>

namespace kvcompress {
namespace {

TEST(Error, CarriesItsDetail) {
  const absl::Status status =
      MakeError(absl::StatusCode::kInvalidArgument, "no",
                {.reason = "WHY",
                 .tensor = "a\n=\"b\\",
                 .offset = 7,
                 .element = 3,
                 .limit = 9,
                 .field = "options.codec"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason, "WHY");
  EXPECT_EQ(detail->tensor, "a\n=\"b\\");
  EXPECT_EQ(detail->offset, 7);
  EXPECT_EQ(detail->element, 3);
  EXPECT_EQ(detail->limit, 9);
  EXPECT_EQ(detail->field, "options.codec");
}

TEST(Error, SaysWhere) {
  EXPECT_EQ(MakeError(absl::StatusCode::kDataLoss, "bad",
                      {.reason = "X", .tensor = "t", .offset = 5})
                .message(),
            "bad (tensor \"t\", offset 5)");
  EXPECT_EQ(
      MakeError(absl::StatusCode::kDataLoss, "bad", {.reason = "X"}).message(),
      "bad");
}

TEST(Error, StrangersHaveNone) {
  EXPECT_FALSE(GetErrorDetail(absl::InternalError("x")));
  EXPECT_FALSE(GetErrorDetail(absl::OkStatus()));
}

TEST(QuoteName, IsSafeToShow) {
  EXPECT_EQ(QuoteName("a\nb\"\x1b"), "\"a\\nb\\\"\\033\"");
  EXPECT_EQ(QuoteName("größe"), "\"größe\"");
  const std::string shown = QuoteName(std::string(1000, 'a'));
  EXPECT_LT(shown.size(), 210);
  EXPECT_EQ(shown.substr(shown.size() - 4), "...\"");
}

TEST(TruncateUtf8, NeverCutsACharacter) {
  EXPECT_EQ(TruncateUtf8("aé", 2), "a");
  EXPECT_EQ(TruncateUtf8("aé", 3), "aé");
  EXPECT_EQ(TruncateUtf8("\xf0\x9f\x98\x80z", 3), "");
}

TEST(Printable, LeavesTextAlone) {
  for (const char* text :
       {"", "open a\\b: no \"such\" file", "\u00e4\u4e2d\U0001f600"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(Printable, EscapesWhatActsOnATerminal) {
  EXPECT_EQ(Printable("a\x1b[31mred\x7f"), "a\\x1b[31mred\\x7f");
  EXPECT_EQ(Printable("two\nlines\r\t"), "two\\nlines\\r\\t");
  EXPECT_EQ(Printable(absl::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(Printable("\u009b2J"), "\\x9b2J");
  EXPECT_EQ(Printable("gpj.\u202eexe"), "gpj.\\u202eexe");
  EXPECT_EQ(Printable("\u2066\u200b\ufeff"), "\\u2066\\u200b\\ufeff");
  EXPECT_EQ(Printable("\U000e0041"), "\\U000e0041");
}

TEST(Printable, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xc0\x8a"), "\\xc0\\x8a");           // too long
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(Printable("\xe2\x82\xc3\xa4"), "\\xe2\\x82\u00e4");
}

TEST(Printable, IsPartOfAQuotedName) {
  EXPECT_EQ(QuoteName("a\x1b\u202e\xff"), "\"a\\033\\u202e\\xff\"");
}

}  // namespace
}  // namespace kvcompress
