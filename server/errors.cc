// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "errors.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "admission.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kvcompress/error.h"

namespace kvcompress {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const ErrorDetail detail = GetErrorDetail(status).value_or(
      ErrorDetail{.reason = absl::StatusCodeToString(status.code())});

  google::rpc::ErrorInfo info;
  info.set_reason(detail.reason);
  info.set_domain(kErrorDomain);
  auto& metadata = *info.mutable_metadata();
  if (detail.tensor) {
    metadata["tensor"] =
        std::string(TruncateUtf8(*detail.tensor, kMaxShownName));
  }
  if (detail.offset) metadata["offset"] = absl::StrCat(*detail.offset);
  if (detail.element) metadata["element"] = absl::StrCat(*detail.element);
  if (detail.limit) metadata["limit"] = absl::StrCat(*detail.limit);
  if (detail.field) metadata["field"] = *detail.field;
  if (detail.profile) metadata["profile"] = *detail.profile;

  const std::string message(status.message());
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  details.add_details()->PackFrom(info);
  if (detail.field) {
    google::rpc::BadRequest bad_request;
    auto& violation = *bad_request.add_field_violations();
    violation.set_field(*detail.field);
    violation.set_description(message);
    details.add_details()->PackFrom(bad_request);
  }
  if (const std::optional<absl::Duration> delay = RetryDelayOf(status)) {
    google::rpc::RetryInfo retry;
    const int64_t milliseconds = absl::ToInt64Milliseconds(*delay);
    retry.mutable_retry_delay()->set_seconds(milliseconds / 1000);
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(milliseconds % 1000 * 1'000'000));
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      details.SerializeAsString());
}

}  // namespace kvcompress
