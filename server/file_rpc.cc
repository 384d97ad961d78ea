// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "file_rpc.h"

#include <memory>
#include <string>
#include <utility>

#include "compress_session.h"
#include "decompress_session.h"
#include "file_reactor.h"
#include "request.h"

namespace kvcompress {
namespace {

Existing ExistingOf(bool overwrite, bool reuse = false) {
  if (!overwrite) return Existing::kRefuse;
  return reuse ? Existing::kReuse : Existing::kReplace;
}

class CompressJob : public FileJob<v1::CompressFileResponse> {
 public:
  CompressJob(const grpc::ByteBuffer& request, ServiceState* state, Call* call)
      : request_(request), session_(state->options, call), call_(call) {}

  absl::StatusOr<FileNames> Begin() override {
    v1::CompressFileRequest request;
    RequestMemory memory;
    absl::Status status = ParseRequest(request_, /*held=*/0, /*working=*/0,
                                       call_, &request, &memory);
    if (!status.ok()) return status;
    if (request.options().reconstruct()) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          "CompressFile gives back no values",
          {.reason = "INVALID_OPTIONS", .field = "options.reconstruct"});
    }
    kept_ = memory.kept;
    status = session_.TakeOptions(request.options());
    if (!status.ok()) return status;
    return FileNames{.input = request.input_path(),
                     .output = request.output_path(),
                     .existing = ExistingOf(request.overwrite())};
  }

  absl::Status Take(absl::string_view bytes, SharedOutput* output) override {
    absl::Status status = session_.TakeFile(bytes);
    if (status.ok()) {
      status = call_->ReserveStream(0, session_.working_bytes(bytes.size()),
                                    kept_bytes());
    }
    if (!status.ok()) return status;
    while (true) {
      const absl::StatusOr<bool> more = session_.Step();
      if (!more.ok()) return more.status();
      if (!*more) return absl::OkStatus();
      status = Write(output);
      if (!status.ok()) return status;
    }
  }

  absl::Status End(SharedOutput* output,
                   v1::CompressFileResponse* response) override {
    const absl::StatusOr<CompressReport> report = session_.Finish();
    if (!report.ok()) return report.status();
    absl::Status status = Write(output);
    if (status.ok()) {
      status = output->WriteAt(0, session_.compressor().header());
    }
    if (!status.ok()) return status;
    call_->observer().BytesSent(call_->method(), report->compressed_size);
    *response->mutable_trailer() =
        ToProto(*report, session_.report_tensors(), call_->Seconds());
    return absl::OkStatus();
  }

  uint64_t working_bytes() const override { return session_.working_bytes(); }
  uint64_t kept_bytes() const override { return 2 * request_.Length() + kept_; }

 private:
  absl::Status Write(SharedOutput* output) {
    std::string& artefact = session_.output().artefact;
    if (artefact.empty()) return absl::OkStatus();
    if (offset_ == 0) offset_ = session_.compressor().reserved_header_size();
    absl::Status status = output->WriteAt(offset_, artefact);
    offset_ += artefact.size();
    artefact.clear();
    return status;
  }

  const grpc::ByteBuffer request_;
  CompressSession session_;
  Call* const call_;
  uint64_t kept_ = 0;
  uint64_t offset_ = 0;  // 0 before the first write
};

class DecompressJob : public FileJob<v1::DecompressFileResponse> {
 public:
  DecompressJob(const grpc::ByteBuffer& request, ServiceState* state,
                Call* call)
      : request_(request), session_(state->options, call), call_(call) {}

  absl::StatusOr<FileNames> Begin() override {
    v1::DecompressFileRequest request;
    RequestMemory memory;
    absl::Status status = ParseRequest(request_, /*held=*/0, /*working=*/0,
                                       call_, &request, &memory);
    if (!status.ok()) return status;
    const bool verify_only = request.options().verify_only();
    if (verify_only && !request.output_path().empty()) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          "verify_only writes nothing, and an output is named",
          {.reason = "INVALID_OPTIONS", .field = "options.verify_only"});
    }
    status = session_.TakeOptions(request.options());
    if (!status.ok()) return status;
    return FileNames{
        .input = request.input_path(),
        .output = request.output_path(),
        .existing = ExistingOf(request.overwrite(), request.reuse()),
        .writes = !verify_only};
  }

  absl::Status Take(absl::string_view bytes, SharedOutput* output) override {
    for (bool more = true; more;) {
      const absl::StatusOr<bool> step = session_.Decode(&bytes, &restored_);
      if (!step.ok()) return step.status();
      more = *step;
      if (output != nullptr) {
        absl::Status status = output->WriteAt(offset_, restored_);
        if (!status.ok()) return status;
      }
      offset_ += restored_.size();
      restored_.clear();
    }
    return absl::OkStatus();
  }

  absl::Status End(SharedOutput*,
                   v1::DecompressFileResponse* response) override {
    absl::StatusOr<v1::DecompressionReport> report = session_.Finish();
    if (!report.ok()) return report.status();
    call_->observer().BytesSent(call_->method(), offset_);
    *response->mutable_trailer() = *std::move(report);
    return absl::OkStatus();
  }

  uint64_t working_bytes() const override { return session_.working_bytes(); }
  uint64_t kept_bytes() const override { return 2 * request_.Length(); }

 private:
  const grpc::ByteBuffer request_;
  DecompressSession session_;
  Call* const call_;
  std::string restored_;
  uint64_t offset_ = 0;
};

template <typename Job, typename Response>
RawReactor* New(grpc::CallbackServerContext* context, Method method,
                ServiceState* state) {
  auto* const reactor = new FileReactor<Response>(context, method, state);
  reactor->Start([state](const grpc::ByteBuffer& request, Call* call) {
    return std::make_unique<Job>(request, state, call);
  });
  return reactor;
}

}  // namespace

RawReactor* NewCompressFile(grpc::CallbackServerContext* context,
                            ServiceState* state) {
  return New<CompressJob, v1::CompressFileResponse>(
      context, Method::kCompressFile, state);
}

RawReactor* NewDecompressFile(grpc::CallbackServerContext* context,
                              ServiceState* state) {
  return New<DecompressJob, v1::DecompressFileResponse>(
      context, Method::kDecompressFile, state);
}

}  // namespace kvcompress
