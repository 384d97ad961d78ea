// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A call that names files: works on the input slice by slice, tells how far it
// is ten times a second, and ends with a trailer. What it holds it reserves
// from the budget of the service, as a stream does; the watchdog ends its
// waits; and between two slices it looks whether anybody still wants the
// result. It works on the threads of the service.

#ifndef KVCOMPRESS_SERVER_FILE_REACTOR_H_
#define KVCOMPRESS_SERVER_FILE_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "call.h"
#include "kvcompress/error.h"
#include "read_ahead.h"
#include "service_state.h"
#include "shared_directory.h"
#include "stream_reactor.h"
#include "watchdog.h"
#include "worker_pool.h"

namespace kvcompress {

// What a call does with its file. Calls come one at a time.
template <typename Response>
class FileJob {
 public:
  virtual ~FileJob() = default;

  // Takes the options; before anything else.
  virtual absl::Status Begin() = 0;
  // Takes bytes of the input, all of them, and writes what they give.
  virtual absl::Status Take(absl::string_view bytes, SharedOutput* output) = 0;
  // The input has ended: writes what is left, and fills in the trailer.
  virtual absl::Status End(SharedOutput* output, Response* response) = 0;
  // Memory that is needed beside the slices, in bytes.
  virtual uint64_t working_bytes() const = 0;
};

// What a request names.
struct FileNames {
  std::string input;
  std::string output;
  bool overwrite = false;
  bool writes = true;  // whether there is an output
};

template <typename Response>
class FileReactor : public grpc::ServerWriteReactor<Response>,
                    private WatchedCall {
 public:
  FileReactor(grpc::CallbackServerContext* context, Method method,
              FileNames names, ServiceState* state)
      : WatchedCall(&state->watchdog, context),
        context_(context),
        workers_(state->workers),
        directory_(state->options.shared_directory),
        names_(std::move(names)),
        call_(method, context, state) {}

  // Begins, or refuses. REQUIRES: once.
  void Start(std::unique_ptr<FileJob<Response>> job) {
    job_ = std::move(job);
    absl::Status status = Guarded([&] { return Open(); });
    if (!status.ok()) return this->Finish(call_.End(status));
    // The work is done where the answer to this is handled.
    this->StartSendInitialMetadata();
  }

  Call& call() { return call_; }

 private:
  static constexpr std::chrono::milliseconds kProgressInterval{100};

  absl::Status Open() {
    if (absl::Status status = call_.Allow(); !status.ok()) return status;
    if (directory_ == nullptr) {
      return MakeError(absl::StatusCode::kUnimplemented,
                       "this server shares no directory",
                       {.reason = "NO_SHARED_DIRECTORY"});
    }
    if (!call_.is_local()) {
      return MakeError(absl::StatusCode::kPermissionDenied,
                       "only clients on a Unix socket may name files",
                       {.reason = "NOT_LOCAL"});
    }
    absl::Status status = call_.ReserveStream(0, 0);
    if (status.ok()) status = job_->Begin();
    if (!status.ok()) return status;
    absl::StatusOr<SharedInput> input =
        directory_->OpenInput(names_.input, "input_path");
    if (!input.ok()) return input.status();
    input_.emplace(*std::move(input));
    if (names_.writes) {
      absl::StatusOr<SharedOutput> output = directory_->CreateOutput(
          names_.output, names_.overwrite, "output_path");
      if (!output.ok()) return output.status();
      output_.emplace(*std::move(output));
    }
    reader_.emplace(input_->fd(), input_->size());
    return absl::OkStatus();
  }

  void OnSendInitialMetadataDone(bool ok) override {
    ok ? Go() : End(absl::CancelledError("the client has gone"));
  }

  void OnWriteDone(bool ok) override {
    if (!EndWait()) return;
    if (!ok) return End(absl::CancelledError("the client has gone"));
    concluded_ ? End(absl::OkStatus()) : Go();
  }

  void OnCancel() override {}

  void OnDone() override { delete this; }

  void Go() {
    workers_.Run([this] { Run(); });
  }

  // Works until it is time to tell, or done.
  void Run() {
    response_.Clear();
    const absl::StatusOr<bool> done = Guarded([&] { return Work(); });
    if (!done.ok()) return End(done.status());
    concluded_ = *done;
    BeginWait(Wait::kWrite);
    this->StartWrite(&response_);
  }

  // Whether all is done.
  absl::StatusOr<bool> Work() {
    const auto until = std::chrono::steady_clock::now() + kProgressInterval;
    while (std::chrono::steady_clock::now() < until) {
      if (absl::Status status = CheckWanted(); !status.ok()) return status;
      const absl::StatusOr<absl::string_view> bytes = reader_->Next();
      if (!bytes.ok()) return bytes.status();
      if (bytes->empty()) {
        absl::Status status = Conclude();
        if (!status.ok()) return status;
        return true;
      }
      call_.observer().BytesReceived(call_.method(), bytes->size());
      read_ += bytes->size();
      absl::Status status = job_->Take(*bytes, output());
      if (status.ok()) status = call_.ReserveStream(0, job_->working_bytes());
      if (!status.ok()) return status;
    }
    response_.mutable_progress()->set_bytes_read(read_);
    response_.mutable_progress()->set_bytes_total(input_->size());
    return false;
  }

  absl::Status Conclude() {
    absl::Status status = job_->End(output(), &response_);
    if (status.ok()) status = input_->CheckUnchanged();
    if (status.ok()) status = CheckWanted();
    if (status.ok() && output_) status = output_->Publish(input_->mode());
    return status;
  }

  // An error once nobody waits for the result any more, or not for much longer.
  absl::Status CheckWanted() const {
    if (context_->IsCancelled()) {
      return absl::CancelledError("the client has gone");
    }
    return CheckTime();
  }

  SharedOutput* output() { return output_ ? &*output_ : nullptr; }

  void EndCut(const absl::Status& status) override {
    this->Finish(call_.EndCut(status));
  }

  // A file that was changed underneath breaks rules that it kept before.
  void End(absl::Status status) {
    if (!status.ok() && !absl::IsCancelled(status) && input_) {
      if (absl::Status changed = input_->CheckUnchanged(); !changed.ok()) {
        status = changed;
      }
    }
    this->Finish(call_.End(status));
  }

  grpc::CallbackServerContext* const context_;
  WorkerPool& workers_;
  const std::shared_ptr<const SharedDirectory> directory_;
  const FileNames names_;
  Call call_;
  std::unique_ptr<FileJob<Response>> job_;
  std::optional<SharedInput> input_;
  std::optional<SharedOutput> output_;
  std::optional<ReadAhead> reader_;  // of `input_`
  uint64_t read_ = 0;
  Response response_;
  bool concluded_ = false;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_FILE_REACTOR_H_
