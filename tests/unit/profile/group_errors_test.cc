// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is wrong with the payload of a group, and where: the errors say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvcompress/profile.h"
#include "profile/group_decoder.h"
#include "profile/group_encoder.h"
#include "profile/group_format.h"
#include "profile/trained.h"

namespace kvcompress::profile {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kGroupTokens = 300;  // more than one block

class GroupErrors : public ::testing::Test {
 protected:
  GroupErrors() {
    const auto tensors = testing::CacheOf(kGroupTokens, 21);
    std::vector<absl::string_view> sources;
    for (size_t i = 0; i < 4; ++i) {
      sources.push_back(tensors[i].bytes);
      shape_.dtypes.push_back(tensors[i].spec.dtype);
    }
    EncodeGroup(profile_, {}, shape_, sources, /*workers=*/nullptr,
                /*checkpoint=*/nullptr, &payload_);
  }

  std::string ErrorOf(absl::string_view payload) const {
    const auto parsed = GroupQuanta::Parse(payload, profile_, 0, shape_,
                                           /*checkpoint=*/nullptr);
    if (parsed.ok()) return "";
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss);
    return std::string(parsed.status().message());
  }
  std::string ErrorWith(size_t position, char byte) const {
    std::string changed = payload_;
    changed.at(position) = byte;
    return ErrorOf(changed);
  }

  const std::shared_ptr<const Profile> profile_ =
      *Profile::Parse(testing::TrainedProfile());
  GroupShape shape_ = {.batches = 1, .tokens = kGroupTokens, .dtypes = {}};
  std::string payload_;
};

TEST_F(GroupErrors, NameTheFieldOfTheHeaderAndItsOffset) {
  EXPECT_EQ(ErrorOf(payload_), "");
  EXPECT_EQ(ErrorOf(payload_.substr(0, 20)),
            "a group's payload has fewer bytes than it says");
  EXPECT_EQ(ErrorWith(0, 9),
            "the header of a group's payload has an unknown mode, at byte 0");
  EXPECT_EQ(ErrorWith(4, 99),
            "the header of a group's payload has an unknown preset, at byte 4");
  EXPECT_EQ(ErrorWith(30, 1),
            "the header of a group's payload has a reserved byte that is not "
            "0, at byte 30");
}

TEST_F(GroupErrors, NameTheBlockAndItsOffset) {
  const std::string cut =
      ErrorOf(absl::string_view(payload_).substr(0, payload_.size() - 1));
  EXPECT_THAT(cut, AllOf(StartsWith("block 1, at byte "),
                         EndsWith("has fewer bytes than it says")));
  EXPECT_THAT(ErrorOf(payload_ + "x"), EndsWith("bytes behind its end"));
  bool too_few_words = false;
  for (size_t i = payload_.size() / 2; i < payload_.size(); ++i) {
    const std::string error =
        ErrorWith(i, static_cast<char>(payload_[i] ^ 0x55));
    if (error.empty()) continue;  // bits that are values
    EXPECT_THAT(error, AllOf(StartsWith("block "), HasSubstr(", at byte ")))
        << i;
    too_few_words |= error.find("too few words") != std::string::npos;
  }
  EXPECT_TRUE(too_few_words);
}

}  // namespace
}  // namespace kvcompress::profile
