// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/status.h"

#include <grpcpp/support/status.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

std::optional<std::string> Text(const google::rpc::ErrorInfo& info,
                                const char* key) {
  const auto found = info.metadata().find(key);
  if (found == info.metadata().end()) return std::nullopt;
  return found->second;
}

std::optional<uint64_t> Number(const google::rpc::ErrorInfo& info,
                               const char* key) {
  const std::optional<std::string> text = Text(info, key);
  uint64_t value;
  if (!text || !absl::SimpleAtoi(*text, &value)) return std::nullopt;
  return value;
}

std::optional<ErrorDetail> FindDetail(const std::string& serialized) {
  google::rpc::Status details;
  if (!details.ParseFromString(serialized)) return std::nullopt;
  for (const google::protobuf::Any& any : details.details()) {
    google::rpc::ErrorInfo info;
    if (!any.Is<google::rpc::ErrorInfo>() || !any.UnpackTo(&info)) continue;
    return ErrorDetail{.reason = info.reason(),
                       .tensor = Text(info, "tensor"),
                       .offset = Number(info, "offset"),
                       .element = Number(info, "element"),
                       .limit = Number(info, "limit"),
                       .field = Text(info, "field"),
                       .profile = Text(info, "profile")};
  }
  return std::nullopt;
}

void CopyPayloads(const absl::Status& from, absl::Status* to) {
  from.ForEachPayload([to](absl::string_view url, const absl::Cord& payload) {
    to->SetPayload(url, payload);
  });
}

}  // namespace

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  absl::Status result(code, status.error_message());
  if (const auto detail = FindDetail(status.error_details())) {
    // The message says already what MakeError would add to it.
    CopyPayloads(MakeError(code, "", *detail), &result);
  }
  return result;
}

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(prefix, status.message()));
  CopyPayloads(status, &result);
  return result;
}

}  // namespace kvcompress
