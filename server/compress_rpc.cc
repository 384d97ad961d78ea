// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "compress_rpc.h"

#include <memory>
#include <utility>

#include "compress_session.h"
#include "request.h"
#include "stream_reactor.h"
#include "wire/messages.h"

namespace kvcompress {
namespace {

// What a message carries at most, unless a whole tensor gives more: output of
// one request is gathered up to here.
constexpr size_t kGathered = 512 << 10;

// What Compress and Measure do with their requests.
template <typename Request>
class CacheHandler : public StreamHandler {
 public:
  explicit CacheHandler(const ServiceOptions& options, Call* call)
      : session_(options, call), call_(call) {}

  absl::Status Take(const grpc::ByteBuffer& request,
                    uint64_t* content) override {
    taken_ = request.Length();
    if (pieces_.TakeBytes(request, Request::kSafetensorsFieldNumber)) {
      const absl::string_view piece = pieces_.Next();
      *content = piece.empty() ? 0 : request.Length();
      return session_.TakeFile(piece);
    }
    pieces_ = Pieces();
    RequestMemory memory;
    absl::Status status = ParseRequest(request, kept_, working_bytes(), call_,
                                       &request_, &memory);
    if (!status.ok()) return status;
    switch (request_.message_case()) {
      case Request::kOptions:
        *content = kAll;
        kept_ += request.Length() + memory.kept;
        status = TakeOptions(request_.options());
        request_.Clear();
        return status;
      case Request::kSafetensors:
        *content = request_.safetensors().size();
        return session_.TakeFile(request_.safetensors());
      case Request::kTensors:
        *content = kAll;
        status = session_.TakeTable(request_.tensors());
        request_.Clear();
        return status;
      case Request::kTensorData:
        *content = request_.tensor_data().data().size();
        return session_.TakeTensor(request_.tensor_data());
      case Request::MESSAGE_NOT_SET:
        break;
    }
    return CompressSession::OutOfOrder("the message is empty");
  }

  absl::Status End() override {
    ended_ = true;
    return absl::OkStatus();
  }

  uint64_t working_bytes() const override {
    return session_.working_bytes(taken_);
  }
  uint64_t kept_bytes() const override { return kept_; }

 protected:
  virtual absl::Status TakeOptions(const v1::CompressOptions& options) {
    return session_.TakeOptions(options);
  }

  // Encodes some of what was taken; false when nothing of it is left.
  absl::StatusOr<bool> Step() {
    absl::StatusOr<bool> more = session_.Step();
    if (!more.ok() || *more) return more;
    const absl::string_view piece = pieces_.Next();
    if (piece.empty()) {
      taken_ = 0;
      return false;
    }
    absl::Status status = session_.TakeFile(piece);
    if (!status.ok()) return status;
    return true;
  }

  CompressSession session_;
  Call* const call_;
  uint64_t taken_ = 0;  // bytes of the message that is being worked on
  bool ended_ = false;

 private:
  // The message that is being worked on: of bytes, or another.
  Pieces pieces_;
  Request request_;
  uint64_t kept_ = 0;  // of options, in bytes
};

class CompressHandler final : public CacheHandler<v1::CompressRequest> {
 public:
  using CacheHandler::CacheHandler;

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
    *last.mutable_trailer() =
        ToProto(*report_, session_.report_tensors(), call_->Seconds());
    *response = Serialize(last);
    concluded_ = true;
    return true;
  }

  bool begin_sent_ = false;
  bool concluded_ = false;
  uint64_t artefact_offset_ = 0;
  uint64_t reconstructed_offset_ = 0;
  std::optional<CompressReport> report_;
};

class MeasureHandler final : public CacheHandler<v1::MeasureRequest> {
 public:
  using CacheHandler::CacheHandler;

  absl::StatusOr<bool> Next(grpc::ByteBuffer* response) override {
    while (true) {
      const absl::StatusOr<bool> more = Step();
      if (!more.ok()) return more.status();
      if (!*more) break;
      session_.output().artefact.clear();
      absl::Status status =
          call_->ReserveStream(taken_, working_bytes(), kept_bytes());
      if (!status.ok()) return status;
    }
    if (!ended_ || concluded_) return false;
    concluded_ = true;
    const absl::StatusOr<CompressReport> report = session_.Finish();
    if (!report.ok()) return report.status();
    v1::MeasureResponse last;
    *last.mutable_report() =
        ToProto(*report, session_.report_tensors(), call_->Seconds());
    *response = Serialize(last);
    return true;
  }

 private:
  absl::Status TakeOptions(const v1::CompressOptions& options) override {
    if (!options.reconstruct()) return CacheHandler::TakeOptions(options);
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        "Measure cannot return reconstructed values",
        {.reason = "INVALID_OPTIONS", .field = "options.reconstruct"});
  }

  bool concluded_ = false;
};

}  // namespace

RawReactor* NewCompress(grpc::CallbackServerContext* context,
                        ServiceState* state) {
  return NewStream<CompressHandler>(context, Method::kCompress, state);
}

RawReactor* NewMeasure(grpc::CallbackServerContext* context,
                       ServiceState* state) {
  return NewStream<MeasureHandler>(context, Method::kMeasure, state);
}

}  // namespace kvcompress
