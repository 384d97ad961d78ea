// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cpp/receivers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kvcompress {
namespace {

absl::Status Unexpected(absl::string_view what) {
  return absl::InternalError(absl::StrCat("the server sent ", what));
}

}  // namespace

absl::Status ReceivedFile::Add(const v1::FileChunk& chunk) {
  absl::Status status = cover_.Add(chunk.offset(), chunk.data().size());
  if (!status.ok() || sink_ == nullptr) return status;
  return sink_->WriteAt(chunk.offset(), chunk.data());
}

absl::Status ReceivedFile::Finish(uint64_t size) const {
  const absl::StatusOr<uint64_t> received = cover_.Finish();
  if (!received.ok()) return received.status();
  if (*received == size) return absl::OkStatus();
  return Unexpected(
      absl::StrCat(*received, " bytes of a file but reported ", size));
}

absl::Status CompressReceiver::Receive(const v1::CompressResponse& response) {
  if (report_) return Unexpected("more after its report");
  switch (response.message_case()) {
    case v1::CompressResponse::kBegin:
      if (artefact_) return Unexpected("a second beginning");
      artefact_.emplace(sink_, response.begin().reserved_header_bytes());
      return absl::OkStatus();
    case v1::CompressResponse::kArtefact:
      if (!artefact_) return Unexpected("a chunk before the beginning");
      return artefact_->Add(response.artefact());
    case v1::CompressResponse::kReconstructed:
      return reconstructed_.Add(response.reconstructed());
    case v1::CompressResponse::kTrailer:
      report_ = response.trailer();
      return absl::OkStatus();
    case v1::CompressResponse::MESSAGE_NOT_SET:
      break;
  }
  return Unexpected("a message that this client does not know");
}

absl::StatusOr<v1::CompressionReport> CompressReceiver::Finish() const {
  if (!report_ || !artefact_) return Unexpected("no report");
  absl::Status status = artefact_->Finish(report_->compressed_size_bytes());
  if (!status.ok()) return status;
  return *report_;
}

absl::Status DecompressReceiver::Receive(
    const v1::DecompressResponse& response) {
  if (report_) return Unexpected("more after its report");
  switch (response.message_case()) {
    case v1::DecompressResponse::kSafetensors:
      return file_.Add(response.safetensors());
    case v1::DecompressResponse::kTrailer:
      report_ = response.trailer();
      return absl::OkStatus();
    case v1::DecompressResponse::MESSAGE_NOT_SET:
      break;
  }
  return Unexpected("a message that this client does not know");
}

absl::StatusOr<v1::DecompressionReport> DecompressReceiver::Finish() const {
  if (!report_) return Unexpected("no report");
  absl::Status status = file_.Finish(report_->output_size_bytes());
  if (!status.ok()) return status;
  return *report_;
}

}  // namespace kvcompress
