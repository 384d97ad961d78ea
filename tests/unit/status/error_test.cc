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

}  // namespace
}  // namespace kvcompress
