// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "decompress_session.h"

#include <utility>

#include "convert.h"
#include "kvcompress/error.h"

namespace kvcompress {

absl::Status DecompressSession::OutOfOrder(absl::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument, message,
                   {.reason = "INVALID_MESSAGE_ORDER", .field = "message"});
}

absl::Status DecompressSession::TakeOptions(
    const v1::DecompressOptions& options) {
  if (begun())
    return OutOfOrder("options must be sent once, as the first message");
  absl::StatusOr<DecompressOptions> converted = FromProto(options);
  if (!converted.ok()) return converted.status();
  profiles_ = options_.CurrentProfiles();
  converted->profiles = profiles_->All();
  decompressor_ =
      std::make_unique<Decompressor>(*std::move(converted), limits_);
  return absl::OkStatus();
}

absl::StatusOr<bool> DecompressSession::Decode(absl::string_view* bytes,
                                               std::string* restored) {
  absl::Status status = call_->CheckWanted();
  if (!status.ok()) return status;
  const StageTimer timer(&decode_seconds_);
  const absl::StatusOr<bool> more =
      decompressor_->Restore(bytes, kMaxOutput, restored);
  if (!more.ok()) {
    return ReportIntegrity(profiles_->Explain(more.status()));
  }
  if (decompressor_->threads() > 1 &&
      !call_->ReserveIfSpare(decompressor_->working_bytes())) {
    decompressor_->UseOneThread();
  }
  status = call_->ReserveWorking(working_bytes());
  if (!status.ok()) return status;
  return more;
}

absl::StatusOr<v1::DecompressionReport> DecompressSession::Finish() {
  const absl::StatusOr<DecompressReport> report = decompressor_->Finish();
  if (!report.ok()) return ReportIntegrity(report.status());
  call_->observer().Decompressed(*report);
  ReportTime(*report);
  return ToProto(*report, call_->Seconds());
}

// The time is shared out among the codecs by the bytes each one gave.
void DecompressSession::ReportTime(const DecompressReport& report) {
  for (const auto& [codec, bytes] : report.decoded_bytes) {
    if (bytes == 0) continue;
    call_->observer().CodecTime(codec, Stage::kDecode,
                                decode_seconds_ * static_cast<double>(bytes) /
                                    static_cast<double>(report.original_size));
  }
}

absl::Status DecompressSession::ReportIntegrity(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kDataLoss) {
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    call_->observer().IntegrityFailure(detail ? detail->reason : "");
  }
  return status;
}

}  // namespace kvcompress
