// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Numbers of enumerations that no version of the API has had are refused; what
// has many tensors is converted in steps.

#include "convert.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

template <typename Options>
void ExpectRefused(const Options& options, const char* field) {
  const absl::Status status = FromProto(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(GetErrorDetail(status).has_value());
  EXPECT_EQ(GetErrorDetail(status)->reason, "INVALID_OPTIONS");
  EXPECT_EQ(GetErrorDetail(status)->field, field);
}

TEST(Convert, RefusesUnknownEnumerators) {
  constexpr int kUnknown = 99;
  v1::CompressOptions compress;
  compress.set_effort(static_cast<v1::Effort>(kUnknown));
  ExpectRefused(compress, "options.effort");
  compress.set_effort(v1::EFFORT_BEST);
  compress.set_metrics(static_cast<v1::MetricsLevel>(kUnknown));
  ExpectRefused(compress, "options.metrics");
  v1::DecompressOptions decompress;
  decompress.set_order(static_cast<v1::TensorOrder>(kUnknown));
  ExpectRefused(decompress, "options.order");
  decompress.set_order(v1::TENSOR_ORDER_LAYERS);
  ASSERT_TRUE(FromProto(decompress).ok());
  EXPECT_EQ(FromProto(decompress)->order, TensorOrder::kLayers);
}

TEST(Convert, ManyTensorsWereOneStep) {
  constexpr int kTensors = 4096;
  const auto stops = [] {
    return Checkpoint([] { return absl::CancelledError("not wanted"); });
  };
  v1::TensorTable table;
  for (int i = 0; i < kTensors; ++i) {
    table.add_tensors()->set_dtype(v1::DATA_TYPE_F16);
  }
  Checkpoint table_stops = stops();
  EXPECT_EQ(TensorsFromProto(table, &table_stops).status(),
            absl::CancelledError("not wanted"));
  EXPECT_EQ(TensorsFromProto(table, nullptr)->size(), kTensors);
  CompressReport report;
  report.tensors.resize(kTensors);
  Checkpoint report_stops = stops();
  EXPECT_LT(ToProto(report, true, 0, &report_stops).tensors_size(), 256);
  EXPECT_EQ(ToProto(report, true, 0).tensors_size(), kTensors);
}

}  // namespace
}  // namespace kvcompress
