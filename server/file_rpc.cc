// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "file_rpc.h"

#include <memory>
#include <string>
#include <utility>

#include "compress_session.h"
#include "decompress_session.h"
#include "file_reactor.h"

namespace kvcompress {
namespace {

class CompressJob : public FileJob<v1::CompressFileResponse> {
 public:
  CompressJob(const v1::CompressFileRequest& request, ServiceState* state,
              Call* call)
      : request_(request), session_(state->options, call), call_(call) {}

  absl::Status Begin() override {
    if (request_.options().reconstruct()) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          "CompressFile gives back no values",
          {.reason = "INVALID_OPTIONS", .field = "options.reconstruct"});
    }
    return session_.TakeOptions(request_.options());
  }

  absl::Status Take(absl::string_view bytes, SharedOutput* output) override {
    absl::Status status = session_.TakeFile(bytes);
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
        ToProto(*report, request_.options().report_tensors(), call_->Seconds());
    return absl::OkStatus();
  }

  uint64_t working_bytes() const override { return session_.working_bytes(); }

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

  const v1::CompressFileRequest& request_;
  CompressSession session_;
  Call* const call_;
  uint64_t offset_ = 0;  // 0 before the first write
};

class DecompressJob : public FileJob<v1::DecompressFileResponse> {
 public:
  DecompressJob(const v1::DecompressFileRequest& request, ServiceState* state,
                Call* call)
      : request_(request), session_(state->options, call), call_(call) {}

  absl::Status Begin() override {
    if (request_.options().verify_only() && !request_.output_path().empty()) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          "verify_only writes nothing, and an output is named",
          {.reason = "INVALID_OPTIONS", .field = "options.verify_only"});
    }
    return session_.TakeOptions(request_.options());
  }

  absl::Status Take(absl::string_view bytes, SharedOutput* output) override {
    while (!bytes.empty()) {
      absl::Status status = session_.Decode(&bytes, &restored_);
      if (status.ok() && output != nullptr) {
        status = output->WriteAt(offset_, restored_);
      }
      if (!status.ok()) return status;
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

 private:
  const v1::DecompressFileRequest& request_;
  DecompressSession session_;
  Call* const call_;
  std::string restored_;
  uint64_t offset_ = 0;
};

template <typename Job, typename Response, typename Request>
grpc::ServerWriteReactor<Response>* New(grpc::CallbackServerContext* context,
                                        Method method, const Request& request,
                                        bool writes, ServiceState* state) {
  auto* reactor = new FileReactor<Response>(context, method,
                                            {.input = request.input_path(),
                                             .output = request.output_path(),
                                             .overwrite = request.overwrite(),
                                             .writes = writes},
                                            state);
  reactor->Start(std::make_unique<Job>(request, state, &reactor->call()));
  return reactor;
}

}  // namespace

grpc::ServerWriteReactor<v1::CompressFileResponse>* NewCompressFile(
    grpc::CallbackServerContext* context,
    const v1::CompressFileRequest* request, ServiceState* state) {
  return New<CompressJob, v1::CompressFileResponse>(
      context, Method::kCompressFile, *request, /*writes=*/true, state);
}

grpc::ServerWriteReactor<v1::DecompressFileResponse>* NewDecompressFile(
    grpc::CallbackServerContext* context,
    const v1::DecompressFileRequest* request, ServiceState* state) {
  return New<DecompressJob, v1::DecompressFileResponse>(
      context, Method::kDecompressFile, *request,
      !request->options().verify_only(), state);
}

}  // namespace kvcompress
