// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/report_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcompress/error.h"
#include "kvcompress/metric_table.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::vector<std::string> Keys(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

v1::CompressionReport Report() {
  v1::CompressionReport report;
  report.set_codec("int4:64");
  report.set_compression_ratio(64.0 / 17);
  report.set_original_size_bytes(1 << 20);
  report.set_compressed_size_bytes(278836);
  report.mutable_metrics()->set_rmse(0.1);
  report.mutable_metrics()->set_snr_db(19.5);
  report.mutable_verdict()->set_level(v1::QUALITY_LEVEL_ACCEPTABLE);
  report.mutable_verdict()->set_passed(true);
  report.set_processing_seconds(0.04532);
  v1::TensorReport* tensor = report.add_tensors();
  tensor->set_name("layer_0_key");
  tensor->set_dtype(v1::DATA_TYPE_BF16);
  tensor->add_shape(2);
  tensor->set_role(v1::TENSOR_ROLE_KEY);
  tensor->set_layer(0);
  tensor->mutable_metrics()->set_rmse(0.2);
  tensor->mutable_metrics()->set_snr_db(12.25);
  report.add_tensors()->set_name("other");
  *report.mutable_worst_tensor() = *tensor;
  return report;
}

TEST(CompressionJsonTest, KeysAndOrderOfTheGoProgramFirst) {
  std::vector<std::string> keys = {"compression_ratio",
                                   "original_size_bytes",
                                   "compressed_size_bytes",
                                   "rmse",
                                   "snr_db",
                                   "cosine_similarity",
                                   "max_error",
                                   "quality_level",
                                   "processing_time_ms",
                                   "quality_passed",
                                   "violations",
                                   "codec",
                                   "bits_per_value",
                                   "mse",
                                   "mae",
                                   "psnr_db",
                                   "tensor_count",
                                   "tensors_failed",
                                   "worst_tensor",
                                   "payload_digest",
                                   "centred_snr_db",
                                   "token_snr_db_p1",
                                   "first_token_rmse"};
  // Those that came later are next to the last of these.
  for (const MetricTraits& metric : AllMetrics()) {
    const std::string name(metric.name);
    if (std::find(keys.begin(), keys.end(), name) == keys.end()) {
      keys.push_back(name);
    }
  }
  keys.insert(keys.end(), {"roles", "warnings", "profile"});
  EXPECT_THAT(Keys(CompressionJson(Report(), false)), ElementsAreArray(keys));
}

TEST(CompressionJsonTest, RolesAndWarnings) {
  v1::CompressionReport report = Report();
  report.mutable_roles()->set_values(2);
  report.add_warnings()->set_code("NO_ROLES");
  report.mutable_warnings(0)->set_message("none is known");
  const Json json = CompressionJson(report, false);
  EXPECT_EQ(json["roles"].dump(), R"({"keys":0,"values":2,"neither":0})");
  EXPECT_EQ(json["warnings"].dump(),
            R"([{"code":"NO_ROLES","message":"none is known","tensor":null}])");
}

TEST(CompressionJsonTest, Values) {
  const Json json = CompressionJson(Report(), false);
  EXPECT_EQ(json["compression_ratio"], 64.0 / 17);
  EXPECT_EQ(json["original_size_bytes"], 1048576);
  EXPECT_EQ(json["quality_level"], "ACCEPTABLE");
  EXPECT_EQ(json["processing_time_ms"], 1e3 * 0.04532);
  EXPECT_EQ(json["violations"], Json::array());
  EXPECT_EQ(json["psnr_db"], nullptr);
  EXPECT_EQ(json["worst_tensor"]["name"], "layer_0_key");
  EXPECT_EQ(json["worst_tensor"]["snr_db"], 12.25);
}

TEST(CompressionJsonTest, AnExactReconstructionHasNoSnr) {
  const Json json = CompressionJson(v1::CompressionReport(), true);
  EXPECT_EQ(json["snr_db"], nullptr);
  EXPECT_EQ(json["worst_tensor"], nullptr);
  EXPECT_EQ(json["quality_level"], nullptr);
  EXPECT_EQ(json["tensors"], Json::array());
}

TEST(CompressionJsonTest, VerboseListsTensors) {
  const Json json = CompressionJson(Report(), true);
  EXPECT_EQ(json["tensor_metrics"],
            Json({{"layer_0_key_rmse", 0.2}, {"other_rmse", 0.0}}));
  const Json& first = json["tensors"][0];
  EXPECT_EQ(first["dtype"], "BF16");
  EXPECT_EQ(first["shape"], Json::array({2}));
  EXPECT_EQ(first["role"], "key");
  EXPECT_EQ(first["layer"], 0);
  const Json& second = json["tensors"][1];
  EXPECT_EQ(second["shape"], Json::array());
  EXPECT_EQ(second["role"], nullptr);
  EXPECT_EQ(second["layer"], nullptr);
}

TEST(DecompressionJsonTest, InventsNoQuality) {
  v1::DecompressionReport report;
  report.set_compression_ratio(3.5);
  (*report.mutable_labels())["b"] = "2";
  (*report.mutable_labels())["a"] = "1";
  const Json json = DecompressionJson(report);
  for (const char* key : {"rmse", "snr_db", "cosine_similarity", "max_error",
                          "quality_level", "quality_passed"}) {
    ASSERT_TRUE(json.contains(key)) << key;
    EXPECT_EQ(json[key], nullptr) << key;
  }
  EXPECT_EQ(json["compression_ratio"], 3.5);
  EXPECT_EQ(json["labels"].dump(), R"({"a":"1","b":"2"})");
  EXPECT_EQ(VerifiedJson(report)["verified"], true);
}

TEST(DamagedJsonTest, SaysWhere) {
  const Json json = DamagedJson(
      MakeError(absl::StatusCode::kDataLoss, "damaged",
                {.reason = "PAYLOAD_DAMAGED", .tensor = "t", .offset = 7}));
  EXPECT_EQ(json["verified"], false);
  EXPECT_EQ(json["code"], "DATA_LOSS");
  EXPECT_EQ(json["reason"], "PAYLOAD_DAMAGED");
  EXPECT_EQ(json["tensor"], "t");
  EXPECT_EQ(json["offset"], 7);
}

TEST(PrintTest, IndentsByTwoAndSurvivesAnyText) {
  EXPECT_EQ(Print({{"a", 1}}), "{\n  \"a\": 1\n}\n");
  EXPECT_THAT(Print("\xff"), HasSubstr("\\ufffd"));
}

TEST(PrintTest, NothingActsOnATerminal) {
  // An escape, DEL, and U+009B, U+202E, U+2066 and U+2028.
  const std::string text =
      "a\x1b\x7f\xc2\x9b\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8 \xe4\xb8\xad";
  for (const std::string& printed : {Print(text), PrintLine(text)}) {
    EXPECT_EQ(printed,
              "\"a\\u001b\\u007f\\u009b\\u202e\\u2066\\u2028 \\u4e2d\"\n");
    EXPECT_EQ(Json::parse(printed), text);
  }
}

}  // namespace
}  // namespace kvcompress::cli
