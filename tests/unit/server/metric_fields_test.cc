// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The table of metrics and the messages of the API have the same names.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "kvcompress/metric_table.h"
#include "kvcompress/v1/quality.pb.h"

namespace kvcompress {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::testing::ElementsAreArray;

// The names of the fields that are doubles, in the order of their numbers.
std::vector<std::string> Doubles(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    if (message.field(i)->type() != FieldDescriptor::TYPE_DOUBLE) continue;
    names.push_back(message.field(i)->name());
  }
  return names;
}

TEST(MetricFieldsTest, EveryMetricIsAFieldThatIsThereWhenItHasAValue) {
  const Descriptor& message = *v1::QualityMetrics::descriptor();
  std::vector<std::string> names;
  for (const MetricTraits& metric : AllMetrics()) {
    names.emplace_back(metric.name);
    const FieldDescriptor* const field = message.FindFieldByName(names.back());
    ASSERT_NE(field, nullptr) << metric.name;
    EXPECT_EQ(field->has_presence(), metric.field.index() == 1) << metric.name;
  }
  EXPECT_THAT(names, ElementsAreArray(Doubles(message)));
}

TEST(MetricFieldsTest, EveryBoundIsAFieldThatMayBeMissing) {
  const Descriptor& message = *v1::QualityThresholds::descriptor();
  std::vector<std::string> names;
  for (const MetricTraits& metric : AllMetrics()) {
    EXPECT_EQ(metric.bound_name.empty(), metric.bound == nullptr);
    if (metric.bound == nullptr) continue;
    names.emplace_back(metric.bound_name);
    const FieldDescriptor* const field = message.FindFieldByName(names.back());
    ASSERT_NE(field, nullptr) << metric.bound_name;
    EXPECT_TRUE(field->has_presence()) << metric.bound_name;
    EXPECT_EQ(metric.bound_name.substr(0, 4),
              metric.lower_is_better ? "max_" : "min_");
  }
  EXPECT_THAT(names, ElementsAreArray(Doubles(message)));
  EXPECT_EQ(message.field_count(), static_cast<int>(names.size()));
}

TEST(MetricFieldsTest, HistogramsHaveHelpAndAscendingBuckets) {
  for (const MetricTraits& metric : AllMetrics()) {
    EXPECT_EQ(metric.histogram.empty(), metric.histogram_help.empty());
    EXPECT_EQ(metric.histogram.empty(), metric.buckets.empty());
    for (size_t i = 1; i < metric.buckets.size(); ++i) {
      EXPECT_LT(metric.buckets[i - 1], metric.buckets[i]) << metric.name;
    }
  }
}

}  // namespace
}  // namespace kvcompress
