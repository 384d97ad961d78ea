// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "compress_rpc.h"

#include <memory>
#include <utility>

#include "compress_session.h"
#include "stream_reactor.h"

namespace kvcompress {
namespace {

// What a message carries at most, unless a whole tensor gives more: output of
// one request is gathered up to here.
constexpr size_t kGathered = 512 << 10;

class CompressHandler : public StreamHandler {
 public:
  CompressHandler(const ServiceOptions& options, Call* call)
      : session_(options, call), call_(call) {}

  absl::Status Take(const grpc::ByteBuffer& request) override {
    if (pieces_.TakeBytes(request,
                          v1::CompressRequest::kSafetensorsFieldNumber)) {
      return session_.TakeFile(pieces_.Next());
    }
    pieces_ = Pieces();
    absl::Status status = ParseRequest(request, &request_);
    if (status.ok()) status = session_.Take(request_);
    return status;
  }

  absl::Status End() override {
    ended_ = true;
    return absl::OkStatus();
  }

  uint64_t working_bytes() const override { return session_.working_bytes(); }

  absl::StatusOr<bool> Next(grpc::ByteBuffer* response) override {
    CompressOutput& output = session_.output();
    bool more = true;
    while (more &&
           output.artefact.size() + output.reconstructed.size() < kGathered) {
      const absl::StatusOr<bool> step = Step();
      if (!step.ok()) return step.status();
      more = *step;
    }
    if (session_.begun() && !begin_sent_) {
      *response = Begin();
      return true;
    }
    if (!output.artefact.empty()) {
      *response = Chunk(v1::CompressResponse::kArtefactFieldNumber,
                        &output.artefact, &artefact_offset_);
      return true;
    }
    if (!output.reconstructed.empty()) {
      *response = Chunk(v1::CompressResponse::kReconstructedFieldNumber,
                        &output.reconstructed, &reconstructed_offset_);
      return true;
    }
    return ended_ ? Conclude(response) : false;
  }

 private:
  // Encodes some of what was taken; false when nothing of it is left.
  absl::StatusOr<bool> Step() {
    absl::StatusOr<bool> more = session_.Step();
    if (!more.ok() || *more) return more;
    const absl::string_view piece = pieces_.Next();
    if (piece.empty()) return false;
    absl::Status status = session_.TakeFile(piece);
    if (!status.ok()) return status;
    return true;
  }

  grpc::ByteBuffer Begin() {
    const Compressor& compressor = session_.compressor();
    v1::CompressResponse response;
    v1::CompressBegin& begin = *response.mutable_begin();
    begin.set_reserved_header_bytes(compressor.reserved_header_size());
    begin.set_codec(compressor.codec());
    begin.set_tensor_count(compressor.tensor_count());
    begin.set_original_size_bytes(compressor.original_size());
    artefact_offset_ = compressor.reserved_header_size();
    begin_sent_ = true;
    return Serialize(response);
  }

  static grpc::ByteBuffer Chunk(int field, std::string* bytes,
                                uint64_t* offset) {
    const size_t size = bytes->size();
    grpc::ByteBuffer message =
        SerializeChunk(field, *offset, std::exchange(*bytes, {}));
    // The next one is likely to be as large, and need not grow to it.
    bytes->reserve(size);
    *offset += size;
    return message;
  }

  // After the input: the header, then the trailer, then no more.
  absl::StatusOr<bool> Conclude(grpc::ByteBuffer* response) {
    if (concluded_) return false;
    if (!report_) {
      absl::StatusOr<CompressReport> report = session_.Finish();
      if (!report.ok()) return report.status();
      report_ = *std::move(report);
      *response = SerializeChunk(v1::CompressResponse::kArtefactFieldNumber, 0,
                                 session_.compressor().header());
      return true;
    }
    v1::CompressResponse last;
    *last.mutable_trailer() = ToProto(
        *report_, session_.options().report_tensors(), call_->Seconds());
    *response = Serialize(last);
    concluded_ = true;
    return true;
  }

  CompressSession session_;
  Call* const call_;
  // The message that is being worked on: of bytes, or another.
  Pieces pieces_;
  v1::CompressRequest request_;
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
      : WatchedCall(&state->watchdog, context),
        response_(response),
        workers_(state->workers),
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
    workers_.Run([this, ok] { Work(ok); });
  }

  void Work(bool has_request) {
    if (!has_request) return End(Guarded([&] { return Conclude(); }));
    if (absl::Status status = Guarded([&] { return Consume(); });
        !status.ok()) {
      return End(status);
    }
    Read();
  }

  void OnCancel() override {}

  void OnDone() override { delete this; }

  void EndCut(const absl::Status& status) override {
    Finish(call_.EndCut(status));
  }

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
  WorkerPool& workers_;
  Call call_;
  CompressSession session_;
  v1::MeasureRequest request_;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewCompress(
    grpc::CallbackServerContext* context, ServiceState* state) {
  auto* reactor = new StreamReactor(context, Method::kCompress, state);
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
