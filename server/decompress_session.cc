// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "decompress_session.h"

#include <utility>

#include "convert.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

// The time is shared out among the codecs by the bytes that each restored.
void ReportTime(const DecompressReport& report, double seconds,
                CallObserver* observer) {
  for (const auto& [codec, bytes] : report.decoded_bytes) {
    if (bytes == 0) continue;
    observer->CodecTime(codec, Stage::kDecode,
                        seconds * static_cast<double>(bytes) /
                            static_cast<double>(report.original_size));
  }
}

}  // namespace

absl::StatusOr<DecompressOptions> DecompressCall::Convert(
    const v1::DecompressOptions& options) {
  absl::StatusOr<DecompressOptions> converted = FromProto(options);
  if (!converted.ok()) return converted;
  profiles_ = options_.CurrentProfiles();
  converted->profiles = profiles_->All();
  return converted;
}

absl::Status DecompressCall::Explain(const absl::Status& status) {
  const absl::Status explained = profiles_->Explain(status);
  if (explained.code() == absl::StatusCode::kDataLoss) {
    const std::optional<ErrorDetail> detail = GetErrorDetail(explained);
    call_->observer().IntegrityFailure(detail ? detail->reason : "");
  }
  return explained;
}

absl::StatusOr<v1::DecompressionReport> DecompressCall::Report(
    const absl::StatusOr<DecompressReport>& report, double seconds) {
  if (!report.ok()) return Explain(report.status());
  call_->observer().Decompressed(*report);
  ReportTime(*report, seconds, &call_->observer());
  return ToProto(*report, call_->Seconds());
}

absl::Status DecompressSession::OutOfOrder(absl::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument, message,
                   {.reason = "INVALID_MESSAGE_ORDER", .field = "message"});
}

absl::Status DecompressSession::TakeOptions(
    const v1::DecompressOptions& options) {
  if (begun())
    return OutOfOrder("options must be sent once, as the first message");
  absl::StatusOr<DecompressOptions> converted = its_.Convert(options);
  if (!converted.ok()) return converted.status();
  decompressor_ =
      std::make_unique<Decompressor>(*std::move(converted), its_.limits());
  return absl::OkStatus();
}

absl::StatusOr<bool> DecompressSession::Decode(absl::string_view* bytes,
                                               std::string* restored) {
  absl::Status status = its_.CheckWanted();
  if (!status.ok()) return status;
  const StageTimer timer(&seconds_);
  const absl::StatusOr<bool> more =
      decompressor_->Restore(bytes, kMaxOutput, restored);
  if (!more.ok()) return its_.Explain(more.status());
  status = its_.Reserve(decompressor_.get());
  if (!status.ok()) return status;
  return more;
}

absl::StatusOr<v1::DecompressionReport> DecompressSession::Finish() {
  return its_.Report(decompressor_->Finish(), seconds_);
}

absl::Status PlacedDecompressSession::TakeOptions(
    const v1::DecompressOptions& options) {
  absl::StatusOr<DecompressOptions> converted = its_.Convert(options);
  if (!converted.ok()) return converted.status();
  decompressor_ = std::make_unique<PlacedDecompressor>(*std::move(converted),
                                                       its_.limits());
  return absl::OkStatus();
}

absl::Status PlacedDecompressSession::Open(const PlacedSource* artefact) {
  const absl::StatusOr<uint64_t> header =
      decompressor_->OpeningBytes(*artefact);
  if (!header.ok()) return header.status();
  absl::Status status = its_.ReserveWorking(*header);
  if (!status.ok()) return status;
  status = decompressor_->Open(artefact);
  if (!status.ok()) return its_.Explain(status);
  opened_ = true;
  return its_.Reserve(decompressor_.get());
}

absl::StatusOr<bool> PlacedDecompressSession::Restore(
    const PlacedSource* artefact, PlacedSink* output, absl::Duration most) {
  const StageTimer timer(&seconds_);
  if (!opened_) {
    absl::Status status = Open(artefact);
    if (!status.ok()) return status;
  }
  const absl::StatusOr<bool> more = decompressor_->Restore(output, most);
  return more.ok() ? more : its_.Explain(more.status());
}

absl::StatusOr<v1::DecompressionReport> PlacedDecompressSession::Finish() {
  return its_.Report(decompressor_->Finish(), seconds_);
}

}  // namespace kvcompress
