// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "decompress_rpc.h"

#include <memory>
#include <string>
#include <utility>

#include "decompress_session.h"
#include "request.h"
#include "stream_reactor.h"
#include "wire/messages.h"

namespace kvcompress {
namespace {

class DecompressHandler : public StreamHandler {
 public:
  DecompressHandler(const ServiceOptions& options, Call* call)
      : session_(options, call), call_(call) {}

  absl::Status Take(const grpc::ByteBuffer& request,
                    uint64_t* content) override {
    if (session_.begun() &&
        pieces_.TakeBytes(request,
                          v1::DecompressRequest::kArtefactFieldNumber)) {
      pending_ = pieces_.Next();
      *content = pending_.empty() ? 0 : request.Length();
      return absl::OkStatus();
    }
    pieces_ = Pieces();
    RequestMemory memory;
    absl::Status status = ParseRequest(request, kept_, session_.working_bytes(),
                                       call_, &request_, &memory);
    if (!status.ok()) return status;
    switch (request_.message_case()) {
      case v1::DecompressRequest::kOptions:
        *content = kAll;
        kept_ += request.Length() + memory.kept;
        status = session_.TakeOptions(request_.options());
        request_.Clear();
        return status;
      case v1::DecompressRequest::kArtefact:
        if (!session_.begun()) return NoOptions();
        pending_ = request_.artefact();
        *content = pending_.size();
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
  uint64_t kept_bytes() const override { return kept_; }

  absl::StatusOr<bool> Next(grpc::ByteBuffer* response) override {
    while (true) {
      if (!more_ && pending_.empty()) pending_ = pieces_.Next();
      if (!more_ && pending_.empty()) break;
      const absl::StatusOr<bool> more = session_.Decode(&pending_, &restored_);
      if (!more.ok()) return more.status();
      more_ = *more;
      if (more_ && !restored_.empty()) break;
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
    return DecompressSession::OutOfOrder("options must be the first message");
  }

  // Takes the restored bytes away.
  grpc::ByteBuffer Chunk() {
    const size_t size = restored_.size();
    grpc::ByteBuffer message =
        SerializeChunk(v1::DecompressResponse::kSafetensorsFieldNumber, offset_,
                       std::move(restored_));
    offset_ += size;
    restored_.clear();
    // The next one is likely to be as large, and need not grow to it.
    restored_.reserve(size);
    return message;
  }

  DecompressSession session_;
  Call* const call_;
  // The message that is being worked on: of bytes, or another.
  Pieces pieces_;
  v1::DecompressRequest request_;
  absl::string_view pending_;
  bool more_ = false;     // whether what was taken of it may yield more
  std::string restored_;  // output that is to be sent
  uint64_t offset_ = 0;
  uint64_t kept_ = 0;  // of options, in bytes
  bool ended_ = false;
  bool concluded_ = false;
};

}  // namespace

RawReactor* NewDecompress(grpc::CallbackServerContext* context,
                          ServiceState* state) {
  return NewStream<DecompressHandler>(context, Method::kDecompress, state);
}

}  // namespace kvcompress
