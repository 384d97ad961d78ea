// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A shared-directory transfer: works on the input, reports progress ten times a
// second, and ends with a trailer. What it holds it reserves from the budget of
// the service, as a stream does; the watchdog ends its waits. gRPC's threads
// admit it and refuse it; whatever parses its request or touches a file, the
// end of one included, runs on those of the service.

#ifndef KVCOMPRESS_SERVER_FILE_REACTOR_H_
#define KVCOMPRESS_SERVER_FILE_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "call.h"
#include "guarded.h"
#include "kvcompress/error.h"
#include "service_state.h"
#include "shared_directory.h"
#include "small_call.h"
#include "watchdog.h"
#include "wire/messages.h"
#include "worker_pool.h"

namespace kvcompress {

// What a request names.
struct FileNames {
  std::string input;
  std::string output;
  Existing existing = Existing::kRefuse;
  bool writes = true;  // whether there is an output
};

// What a call does with its file. Calls come one at a time.
template <typename Response>
class FileJob {
 public:
  virtual ~FileJob() = default;

  // Reads the request and takes the options; before anything else.
  virtual absl::StatusOr<FileNames> Begin() = 0;
  // Works on the input for about so long, and writes the output. False once it
  // has ended. Looks whether anybody still wants the result.
  virtual absl::StatusOr<bool> Work(const SharedInput& input,
                                    SharedOutput* output,
                                    absl::Duration most) = 0;
  // Bytes of the input that were worked on.
  virtual uint64_t done_bytes() const = 0;
  // The input has ended: writes what is left, and fills in the trailer.
  virtual absl::Status End(SharedOutput* output, Response* response) = 0;
  // Memory that is needed besides the slices, in bytes.
  virtual uint64_t working_bytes() const = 0;
  // Memory of what the request has become, in bytes.
  virtual uint64_t kept_bytes() const { return 0; }
};

template <typename Response>
class FileReactor final : public RawReactor, private WatchedCall {
 public:
  FileReactor(grpc::CallbackServerContext* context, Method method,
              ServiceState* state)
      : WatchedCall(&state->watchdog, context),
        workers_(state->workers),
        directory_(state->options.shared_directory),
        call_(method, context, state) {}

  // Returns the job of a request, which is as on the wire.
  using Make = std::function<std::unique_ptr<FileJob<Response>>(
      const grpc::ByteBuffer& request, Call* call)>;

  // Begins to wait for the request, or refuses. REQUIRES: once.
  void Start(Make make) {
    make_ = std::move(make);
    const absl::Status status = Guarded([this] { return Allow(); });
    if (!status.ok()) return Finish(call_.End(status));
    BeginRead([this] { StartRead(&request_); });
  }

 private:
  static constexpr std::chrono::milliseconds kProgressInterval{100};

  absl::Status Allow() {
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
    return call_.ReserveStream(0, 0);
  }

  void OnReadDone(bool ok) override {
    if (!EndWait()) return;
    const absl::Status status = Guarded([this, ok] {
      if (!ok) return NoRequest();
      absl::Status reserved = call_.ReserveStream(request_.Length(), 0);
      if (reserved.ok()) OnWorker([this] { Begin(); });
      return reserved;
    });
    if (!status.ok()) End(status);
  }

  void OnWriteDone(bool ok) override {
    if (!EndWait()) return;
    // Messages of progress are small, so that the work itself counts: for every
    // piece of it the client may take as long to hear of it.
    Forgive(Wait::kWrite, absl::FromChrono(kProgressInterval));
    const absl::Status status = Guarded([this, ok] {
      OnWorker([this, ok] { ok ? Go() : EndGone(); });
      return absl::OkStatus();
    });
    if (!status.ok()) End(status);
  }

  void OnCancel() override {}

  void OnDone() override { delete this; }

  // Throws std::bad_alloc, and is then as if it had not been called.
  void OnWorker(std::function<void()> task) {
    workers_.Run(call_.client(), std::move(task));
  }

  void EndGone() {
    End(Guarded([] {
      return absl::CancelledError(
          "the client cancelled the call or disconnected");
    }));
  }

  void Begin() {
    const absl::Status status = Guarded([this] {
      // Nobody may want it any more, after a wait for a thread.
      absl::Status wanted = call_.CheckWanted();
      if (!wanted.ok()) return wanted;
      job_ = make_(request_, &call_);
      request_.Clear();
      return Open();
    });
    status.ok() ? Run() : End(status);
  }

  absl::Status Open() {
    const absl::StatusOr<FileNames> names = job_->Begin();
    if (!names.ok()) return names.status();
    absl::StatusOr<SharedInput> input =
        directory_->OpenInput(names->input, "input_path");
    if (!input.ok()) return input.status();
    input_.emplace(*std::move(input));
    if (names->writes) {
      absl::StatusOr<SharedOutput> output = directory_->CreateOutput(
          names->output, names->existing, "output_path", &*input_);
      if (!output.ok()) return output.status();
      output_.emplace(*std::move(output));
    }
    return Reserve();
  }

  void Go() { concluded_ ? End(absl::OkStatus()) : Run(); }

  // Works until it is time to report, or done.
  void Run() {
    response_.Clear();
    const absl::StatusOr<bool> done = Guarded([&] { return Work(); });
    if (!done.ok()) return End(done.status());
    concluded_ = *done;
    const absl::Status status = Guarded([this] {
      message_ = Serialize(response_);
      return absl::OkStatus();
    });
    if (!status.ok()) return End(status);
    BeginWait(Wait::kWrite);
    StartWrite(&message_);
  }

  // Whether all is done.
  absl::StatusOr<bool> Work() {
    const uint64_t before = job_->done_bytes();
    const absl::StatusOr<bool> more =
        job_->Work(*input_, output(), absl::FromChrono(kProgressInterval));
    call_.observer().BytesReceived(call_.method(), job_->done_bytes() - before);
    if (!more.ok()) return more.status();
    absl::Status status = *more ? Reserve() : Conclude();
    if (!status.ok()) return status;
    if (*more) {
      response_.mutable_progress()->set_bytes_read(job_->done_bytes());
      response_.mutable_progress()->set_bytes_total(input_->size());
    }
    return !*more;
  }

  absl::Status Conclude() {
    absl::Status status = job_->End(output(), &response_);
    if (status.ok()) status = input_->CheckUnchanged();
    if (status.ok()) status = call_.CheckWanted();
    if (status.ok() && output_) status = output_->Publish(input_->mode());
    return status;
  }

  absl::Status Reserve() {
    return call_.ReserveStream(0, job_->working_bytes(), job_->kept_bytes());
  }

  SharedOutput* output() { return output_ ? &*output_ : nullptr; }

  // What was reserved is given back with the end, and gRPC may keep what is
  // left of a call for as long as its client takes nothing. The job goes before
  // its files.
  void Drop() {
    Leave();
    job_.reset();
    output_.reset();
    input_.reset();
    message_.Clear();
  }

  // To close a file, or to wait for one that is being read, may take long, and
  // this is called on the thread that looks at all calls. Nothing else ends the
  // call meanwhile.
  void EndCut(const absl::Status& status) override {
    Leave();
    const absl::Status queued = Guarded([&] {
      OnWorker([this, status] { FinishCut(status); });
      return absl::OkStatus();
    });
    if (!queued.ok()) FinishCut(status);
  }

  void FinishCut(const absl::Status& status) {
    Drop();
    Finish(call_.EndCut(status));
  }

  // A file that was changed underneath breaks rules that it kept before.
  void End(absl::Status status) {
    if (!status.ok() && !absl::IsCancelled(status) && input_) {
      const absl::Status changed =
          Guarded([this] { return input_->CheckUnchanged(); });
      if (!changed.ok()) status = changed;
    }
    Drop();
    Finish(call_.End(status));
  }

  WorkerPool& workers_;
  const std::shared_ptr<const SharedDirectory> directory_;
  Call call_;
  Make make_;
  grpc::ByteBuffer request_;
  std::unique_ptr<FileJob<Response>> job_;
  std::optional<SharedInput> input_;
  std::optional<SharedOutput> output_;
  Response response_;
  grpc::ByteBuffer message_;  // the response, as on the wire
  bool concluded_ = false;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_FILE_REACTOR_H_
