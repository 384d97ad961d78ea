// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvcompress {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Warnings(std::vector<const char*> variables) {
  variables.push_back(nullptr);
  return UnknownVariables(variables.data());
}

TEST(EnvironmentTest, UnknownVariablesAreNamedWithTheNearestOption) {
  EXPECT_THAT(
      Warnings({"PATH=/bin", "KVCOMPRESS_LISEN=x", "KVCOMPRESS_ZZZZZZZZZZZZ=1",
                "KVCOMPRESS_LISTEN=127.0.0.1:1"}),
      ElementsAre("the environment variable \"KVCOMPRESS_LISEN\" is no option; "
                  "did you mean KVCOMPRESS_LISTEN?",
                  "the environment variable \"KVCOMPRESS_ZZZZZZZZZZZZ\" is no "
                  "option; see --help"));
}

TEST(EnvironmentTest, WhatOthersSetIsNoMistake) {
  EXPECT_THAT(
      Warnings({"KVCOMPRESS_CONFIG=a", "KVCOMPRESS_SERVER=b",
                "KVCOMPRESS_BIN_DIR=c", "KVCOMPRESS_PROFILE=d",
                "KVCOMPRESS_SERVICE_HOST=10.0.0.1",
                "KVCOMPRESS_SERVICE_PORT=50051",
                "KVCOMPRESS_SERVICE_PORT_GRPC=50051",
                "KVCOMPRESS_PORT=tcp://10.0.0.1:50051",
                "KVCOMPRESS_PORT_50051_TCP=tcp://10.0.0.1:50051",
                "KVCOMPRESS_PORT_50051_TCP_ADDR=10.0.0.1",
                "KVCOMPRESS_PORT_50051_TCP_PORT=50051",
                "KVCOMPRESS_POOL_SERVICE_HOST=10.0.0.2",
                "KVCOMPRESS_POOL_PORT_9464_TCP_PROTO=tcp", "OTHER_THING=1"}),
      IsEmpty());
  // These only look like it.
  EXPECT_EQ(Warnings({"KVCOMPRESS_PORT=50051", "KVCOMPRESS_METRICS_PORT=1",
                      "KVCOMPRESS_PORT_RANGE=1"})
                .size(),
            3);
}

}  // namespace
}  // namespace kvcompress
