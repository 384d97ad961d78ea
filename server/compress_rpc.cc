// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "compress_rpc.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "compress_session.h"
#include "request.h"
#include "stream_reactor.h"
#include "wire/messages.h"

namespace kvcompress {
namespace {

// Output is gathered up to here, in bytes, before it is sent.
constexpr size_t kGathered = 512 << 10;
// Clients take messages of 4 MiB unless they are configured otherwise.
constexpr size_t kMaxSent = 2 << 20;

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

// Bytes that go out in messages that no client refuses, however many come at a
// time: the payload of a tensor may.
class OutgoingBytes {
 public:
  // The offset of the first.
  void Begin(uint64_t offset) { offset_ = offset; }

  size_t PendingOf(const std::string& bytes) const {
    return bytes.size() - sent_;
  }

  // Before bytes are appended.
  void DropSent(std::string* bytes) {
    if (sent_ > 0) bytes->erase(0, std::exchange(sent_, 0));
  }

  // The next message. Leaves `*bytes` empty where all are sent.
  grpc::ByteBuffer Next(int field, std::string* bytes) {
    const size_t size = std::min(PendingOf(*bytes), kMaxSent);
    const uint64_t offset = std::exchange(offset_, offset_ + size);
    if (size < bytes->size()) {
      std::string part = bytes->substr(sent_, size);
      sent_ += size;
      if (sent_ == bytes->size()) {
        bytes->clear();
        sent_ = 0;
      }
      return SerializeChunk(field, offset, std::move(part));
    }
    grpc::ByteBuffer message =
        SerializeChunk(field, offset, std::exchange(*bytes, {}));
    // The next one is likely to be as large, and need not grow to it.
    bytes->reserve(size);
    return message;
  }

 private:
  size_t sent_ = 0;  // of the bytes that are there
  uint64_t offset_ = 0;
};

class CompressHandler final : public CacheHandler<v1::CompressRequest> {
 public:
  using CacheHandler::CacheHandler;

  absl::StatusOr<bool> Next(grpc::ByteBuffer* response) override {
    CompressOutput& output = session_.output();
    bool more = true;
    while (more && artefact_.PendingOf(output.artefact) +
                           reconstructed_.PendingOf(output.reconstructed) <
                       kGathered) {
      artefact_.DropSent(&output.artefact);
      reconstructed_.DropSent(&output.reconstructed);
      const absl::StatusOr<bool> step = Step();
      if (!step.ok()) return step.status();
      more = *step;
    }
    if (session_.begun() && !begin_sent_) {
      *response = Begin();
      return true;
    }
    if (!output.artefact.empty()) {
      *response = artefact_.Next(v1::CompressResponse::kArtefactFieldNumber,
                                 &output.artefact);
      return true;
    }
    if (!output.reconstructed.empty()) {
      *response =
          reconstructed_.Next(v1::CompressResponse::kReconstructedFieldNumber,
                              &output.reconstructed);
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
    artefact_.Begin(compressor.reserved_header_size());
    begin_sent_ = true;
    return Serialize(response);
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
    absl::StatusOr<v1::CompressionReport> message =
        session_.ToMessage(*report_);
    if (!message.ok()) return message.status();
    v1::CompressResponse last;
    *last.mutable_trailer() = *std::move(message);
    *response = Serialize(last);
    concluded_ = true;
    return true;
  }

  bool begin_sent_ = false;
  bool concluded_ = false;
  OutgoingBytes artefact_;
  OutgoingBytes reconstructed_;
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
    absl::StatusOr<v1::CompressionReport> message = session_.ToMessage(*report);
    if (!message.ok()) return message.status();
    v1::MeasureResponse last;
    *last.mutable_report() = *std::move(message);
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
