// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "compress_rpc.h"

#include <memory>
#include <utility>

#include "compress_session.h"
#include "stream_reactor.h"

namespace kvcompress {
namespace {

class CompressHandler
    : public StreamHandler<v1::CompressRequest, v1::CompressResponse> {
 public:
  CompressHandler(const ServiceOptions& options, Call* call)
      : session_(options, call), call_(call) {}

  absl::Status Take(const v1::CompressRequest& request) override {
    return session_.Take(request);
  }

  absl::Status End() override {
    ended_ = true;
    return absl::OkStatus();
  }

  uint64_t working_bytes() const override { return session_.working_bytes(); }

  absl::StatusOr<bool> Next(v1::CompressResponse* response) override {
    do {
      if (session_.begun() && !begin_sent_) {
        SendBegin(response->mutable_begin());
        return true;
      }
      CompressOutput& output = session_.output();
      if (!output.artefact.empty()) {
        SendChunk(&output.artefact, &artefact_offset_,
                  response->mutable_artefact());
        return true;
      }
      if (!output.reconstructed.empty()) {
        SendChunk(&output.reconstructed, &reconstructed_offset_,
                  response->mutable_reconstructed());
        return true;
      }
      const absl::StatusOr<bool> more = session_.Step();
      if (!more.ok()) return more.status();
      if (!*more) return ended_ ? Conclude(response) : false;
    } while (true);
  }

 private:
  void SendBegin(v1::CompressBegin* begin) {
    const Compressor& compressor = session_.compressor();
    begin->set_reserved_header_bytes(compressor.reserved_header_size());
    begin->set_codec(compressor.codec());
    begin->set_tensor_count(compressor.tensor_count());
    begin->set_original_size_bytes(compressor.original_size());
    artefact_offset_ = compressor.reserved_header_size();
    begin_sent_ = true;
  }

  static void SendChunk(std::string* bytes, uint64_t* offset,
                        v1::FileChunk* chunk) {
    chunk->set_offset(*offset);
    *offset += bytes->size();
    chunk->mutable_data()->swap(*bytes);
    bytes->clear();
  }

  // After the input: the header, then the trailer, then no more.
  absl::StatusOr<bool> Conclude(v1::CompressResponse* response) {
    if (concluded_) return false;
    if (!report_) {
      absl::StatusOr<CompressReport> report = session_.Finish();
      if (!report.ok()) return report.status();
      report_ = *std::move(report);
      response->mutable_artefact()->set_data(session_.compressor().header());
      return true;
    }
    *response->mutable_trailer() = ToProto(
        *report_, session_.options().report_tensors(), call_->Seconds());
    concluded_ = true;
    return true;
  }

  CompressSession session_;
  Call* const call_;
  bool begin_sent_ = false;
  bool ended_ = false;
  bool concluded_ = false;
  uint64_t artefact_offset_ = 0;
  uint64_t reconstructed_offset_ = 0;
  std::optional<CompressReport> report_;
};

class MeasureReactor : public grpc::ServerReadReactor<v1::MeasureRequest>,
                       private WatchedCall {
 public:
  MeasureReactor(grpc::CallbackServerContext* context,
                 v1::MeasureResponse* response, ServiceState* state)
      : WatchedCall(&state->watchdog),
        response_(response),
        call_(Method::kMeasure, context, state),
        session_(state->options, &call_) {
    absl::Status status = call_.Allow();
    if (status.ok()) status = call_.ReserveStream(0, 0);
    status.ok() ? Read() : End(status);
  }

 private:
  void Read() {
    if (absl::Status status = CheckTime(); !status.ok()) return End(status);
    BeginWait(Wait::kRead);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!EndWait()) return;
    if (!ok) return End(Guarded([&] { return Conclude(); }));
    if (absl::Status status = Guarded([&] { return Consume(); });
        !status.ok()) {
      return End(status);
    }
    Read();
  }

  void OnCancel() override {}

  void OnDone() override { delete this; }

  void CutOff(Wait, const absl::Status& status) override { End(status); }

  absl::Status Reserve() {
    return call_.ReserveStream(request_.ByteSizeLong(),
                               session_.working_bytes());
  }

  absl::Status Consume() {
    call_.observer().BytesReceived(call_.method(), request_.ByteSizeLong());
    absl::Status status = Reserve();
    if (!status.ok()) return status;
    if (request_.options().reconstruct()) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, "Measure gives back no values",
          {.reason = "INVALID_OPTIONS", .field = "options.reconstruct"});
    }
    status = session_.Take(request_);
    absl::StatusOr<bool> more = true;
    while (status.ok() && *more) {
      more = session_.Step();
      status = more.status();
      session_.output().artefact.clear();
      status.Update(Reserve());
    }
    return status;
  }

  absl::Status Conclude() {
    const absl::StatusOr<CompressReport> report = session_.Finish();
    if (!report.ok()) return report.status();
    *response_->mutable_report() =
        ToProto(*report, session_.options().report_tensors(), call_.Seconds());
    call_.observer().BytesSent(call_.method(), response_->ByteSizeLong());
    return absl::OkStatus();
  }

  void End(const absl::Status& status) { Finish(call_.End(status)); }

  v1::MeasureResponse* const response_;
  Call call_;
  CompressSession session_;
  v1::MeasureRequest request_;
};

}  // namespace

grpc::ServerBidiReactor<v1::CompressRequest, v1::CompressResponse>* NewCompress(
    grpc::CallbackServerContext* context, ServiceState* state) {
  auto* reactor = new StreamReactor<v1::CompressRequest, v1::CompressResponse>(
      context, Method::kCompress, state);
  reactor->Start(
      std::make_unique<CompressHandler>(state->options, &reactor->call()));
  return reactor;
}

grpc::ServerReadReactor<v1::MeasureRequest>* NewMeasure(
    grpc::CallbackServerContext* context, v1::MeasureResponse* response,
    ServiceState* state) {
  return new MeasureReactor(context, response, state);
}

}  // namespace kvcompress
