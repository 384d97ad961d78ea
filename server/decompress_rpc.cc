// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "decompress_rpc.h"

#include <memory>
#include <string>
#include <utility>

#include "convert.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/error.h"
#include "stream_reactor.h"

namespace kvcompress {
namespace {

// Input that is decoded at a time, in bytes. Output is up to 64 times as large,
// and 256 times after a last stage.
constexpr size_t kSlice = 16 << 10;
// Output is gathered up to this size, and cut: clients may limit messages to
// 4 MB.
constexpr size_t kMostOutput = 1 << 20;

class DecompressHandler
    : public StreamHandler<v1::DecompressRequest, v1::DecompressResponse> {
 public:
  DecompressHandler(const ServiceOptions& options, Call* call)
      : limits_{.max_header_bytes = options.max_header_bytes,
                .max_tensor_bytes = options.max_tensor_bytes},
        call_(call) {}

  absl::Status Take(const v1::DecompressRequest& request) override {
    switch (request.message_case()) {
      case v1::DecompressRequest::kOptions:
        if (decompressor_ != nullptr) {
          return OutOfOrder("options come once, as the first message");
        }
        decompressor_ = std::make_unique<Decompressor>(
            FromProto(request.options()), limits_);
        return absl::OkStatus();
      case v1::DecompressRequest::kArtefact:
        if (decompressor_ == nullptr) return OutOfOrder("options come first");
        pending_ = request.artefact();
        return absl::OkStatus();
      case v1::DecompressRequest::MESSAGE_NOT_SET:
        break;
    }
    return OutOfOrder("the message is empty");
  }

  absl::Status End() override {
    ended_ = true;
    return decompressor_ == nullptr ? OutOfOrder("options come first")
                                    : absl::OkStatus();
  }

  uint64_t working_bytes() const override {
    return decompressor_ == nullptr ? 0 : decompressor_->working_bytes();
  }

  absl::StatusOr<bool> Next(v1::DecompressResponse* response) override {
    const absl::StatusOr<bool> more = Advance(response);
    if (!more.ok()) ReportIntegrity(more.status());
    return more;
  }

 private:
  static absl::Status OutOfOrder(absl::string_view message) {
    return MakeError(absl::StatusCode::kInvalidArgument, message,
                     {.reason = "INVALID_MESSAGE_ORDER", .field = "message"});
  }

  absl::StatusOr<bool> Advance(v1::DecompressResponse* response) {
    if (sent_ == restored_.size()) {
      restored_.clear();
      sent_ = 0;
    }
    while (sent_ == 0 && restored_.size() < kMostOutput && !pending_.empty()) {
      const absl::string_view slice = pending_.substr(0, kSlice);
      pending_.remove_prefix(slice.size());
      const StageTimer timer(&decode_seconds_);
      if (absl::Status status = decompressor_->Append(slice, &restored_);
          !status.ok()) {
        return status;
      }
    }
    if (sent_ < restored_.size()) {
      v1::FileChunk& chunk = *response->mutable_safetensors();
      chunk.set_offset(offset_);
      chunk.set_data(restored_.substr(sent_, kMostOutput));
      sent_ += chunk.data().size();
      offset_ += chunk.data().size();
      return true;
    }
    if (!ended_ || concluded_) return false;
    concluded_ = true;
    const absl::StatusOr<DecompressReport> report = decompressor_->Finish();
    if (!report.ok()) return report.status();
    ReportTime(*report);
    *response->mutable_trailer() = ToProto(*report, call_->Seconds());
    return true;
  }

  // The time is shared out among the codecs by the bytes each one gave.
  void ReportTime(const DecompressReport& report) {
    for (const auto& [codec, bytes] : report.decoded_bytes) {
      if (bytes == 0) continue;
      call_->observer().CodecTime(
          codec, Stage::kDecode,
          decode_seconds_ * static_cast<double>(bytes) /
              static_cast<double>(report.original_size));
    }
  }

  void ReportIntegrity(const absl::Status& status) {
    if (status.code() != absl::StatusCode::kDataLoss) return;
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    call_->observer().IntegrityFailure(detail ? detail->reason : "");
  }

  const DecompressLimits limits_;
  Call* const call_;
  std::unique_ptr<Decompressor> decompressor_;
  absl::string_view pending_;
  std::string restored_;  // output that is being sent
  size_t sent_ = 0;       // of it
  uint64_t offset_ = 0;
  double decode_seconds_ = 0;
  bool ended_ = false;
  bool concluded_ = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::DecompressRequest, v1::DecompressResponse>*
NewDecompress(grpc::CallbackServerContext* context, ServiceState* state) {
  auto* reactor =
      new StreamReactor<v1::DecompressRequest, v1::DecompressResponse>(
          context, Method::kDecompress, state);
  reactor->Start(
      std::make_unique<DecompressHandler>(state->options, &reactor->call()));
  return reactor;
}

}  // namespace kvcompress
