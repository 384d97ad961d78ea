// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/status.h"

#include <grpcpp/support/status.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

TEST(FromGrpcStatusTest, KeepsCodeMessageAndDetail) {
  google::rpc::ErrorInfo info;
  info.set_reason("PAYLOAD_DAMAGED");
  info.set_domain("kvcompress.v1");
  (*info.mutable_metadata())["tensor"] = "layer_0_key";
  (*info.mutable_metadata())["offset"] = "42";
  google::rpc::Status details;
  details.add_details()->PackFrom(google::rpc::RetryInfo());
  details.add_details()->PackFrom(info);

  const absl::Status status = FromGrpcStatus(
      grpc::Status(grpc::StatusCode::DATA_LOSS, "damaged (offset 42)",
                   details.SerializeAsString()));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "damaged (offset 42)");
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, "PAYLOAD_DAMAGED");
  EXPECT_EQ(detail->tensor, "layer_0_key");
  EXPECT_EQ(detail->offset, 42);
  EXPECT_EQ(detail->limit, std::nullopt);

  const absl::Status annotated = Annotate(status, "read: ");
  EXPECT_EQ(annotated.message(), "read: damaged (offset 42)");
  EXPECT_EQ(GetErrorDetail(annotated)->offset, 42);
}

TEST(FromGrpcStatusTest, DetailsMayBeAbsentOrBroken) {
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
  for (const char* details : {"", "\xff\xff"}) {
    const absl::Status status = FromGrpcStatus(
        grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone", details));
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_EQ(GetErrorDetail(status), std::nullopt);
  }
}

}  // namespace
}  // namespace kvcompress
