// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "decompress_rpc.h"

#include <memory>
#include <string>
#include <utility>

#include "decompress_session.h"
#include "stream_reactor.h"

namespace kvcompress {
namespace {

class DecompressHandler : public StreamHandler {
 public:
  DecompressHandler(const ServiceOptions& options, Call* call)
      : session_(options, call) {}

  absl::Status Take(const grpc::ByteBuffer& request) override {
    if (session_.begun() &&
        pieces_.TakeBytes(request,
                          v1::DecompressRequest::kArtefactFieldNumber)) {
      return absl::OkStatus();
    }
    pieces_ = Pieces();
    absl::Status status = ParseRequest(request, &request_);
    if (!status.ok()) return status;
    switch (request_.message_case()) {
      case v1::DecompressRequest::kOptions:
        return session_.TakeOptions(request_.options());
      case v1::DecompressRequest::kArtefact:
        if (!session_.begun()) return NoOptions();
        pending_ = request_.artefact();
        return absl::OkStatus();
      case v1::DecompressRequest::MESSAGE_NOT_SET:
        break;
    }
    return DecompressSession::OutOfOrder("the message is empty");
  }

  absl::Status End() override {
    ended_ = true;
    return session_.begun() ? absl::OkStatus() : NoOptions();
  }

  uint64_t working_bytes() const override { return session_.working_bytes(); }

  absl::StatusOr<bool> Next(grpc::ByteBuffer* response) override {
    while (restored_.size() < kMostOutput) {
      if (pending_.empty()) pending_ = pieces_.Next();
      if (pending_.empty()) break;
      absl::Status status = session_.Decode(&pending_, &restored_);
      if (!status.ok()) return status;
    }
    if (!restored_.empty()) {
      *response = Chunk();
      return true;
    }
    if (!ended_ || concluded_) return false;
    concluded_ = true;
    absl::StatusOr<v1::DecompressionReport> report = session_.Finish();
    if (!report.ok()) return report.status();
    v1::DecompressResponse last;
    *last.mutable_trailer() = *std::move(report);
    *response = Serialize(last);
    return true;
  }

 private:
  static absl::Status NoOptions() {
    return DecompressSession::OutOfOrder("options come first");
  }

  // Takes restored bytes away, all where they are not too many.
  grpc::ByteBuffer Chunk() {
    std::string rest;
    if (restored_.size() > kMostOutput) {
      rest = restored_.substr(kMostOutput);
      restored_.resize(kMostOutput);
    }
    const size_t size = restored_.size();
    grpc::ByteBuffer message =
        SerializeChunk(v1::DecompressResponse::kSafetensorsFieldNumber, offset_,
                       std::move(restored_));
    offset_ += size;
    restored_ = std::move(rest);
    // The next one is likely to be as large, and need not grow to it.
    restored_.reserve(size);
    return message;
  }

  DecompressSession session_;
  // The message that is being worked on: of bytes, or another.
  Pieces pieces_;
  v1::DecompressRequest request_;
  absl::string_view pending_;
  std::string restored_;  // output that is to be sent
  uint64_t offset_ = 0;
  bool ended_ = false;
  bool concluded_ = false;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewDecompress(
    grpc::CallbackServerContext* context, ServiceState* state) {
  auto* reactor = new StreamReactor(context, Method::kDecompress, state);
  reactor->Start(
      std::make_unique<DecompressHandler>(state->options, &reactor->call()));
  return reactor;
}

}  // namespace kvcompress
