// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "file_rpc.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "checksum.h"
#include "compress_session.h"
#include "decompress_session.h"
#include "file_reactor.h"
#include "kvcompress/safetensors.h"
#include "placed_files.h"
#include "read_ahead.h"
#include "request.h"

namespace kvcompress {
namespace {

Existing ExistingOf(bool overwrite, bool reuse = false) {
  if (!overwrite) return Existing::kRefuse;
  return reuse ? Existing::kReuse : Existing::kReplace;
}

// How long a second reading waits while a writer has the file open: a write
// that made no progress during the first, as its thread was not scheduled, goes
// on.
constexpr absl::Duration kSettling = absl::Milliseconds(500);
constexpr absl::Duration kSettlingStep = absl::Milliseconds(10);

// The rest of a file in its order, read by a second thread while one works on
// it. A file that may change without being seen to is read twice.
class FileReading {
 public:
  // `file` outlives this.
  FileReading(const SharedInput* file, uint64_t begin)
      : file_(*file), begin_(begin) {
    reader_.emplace(file_.fd(), file_.size(), begin_);
    if (file_.unsettled()) first_.emplace();
  }

  // Whether what Next returned is of the first reading.
  bool is_first() const { return !again_; }
  // Whether the first reading has ended, and the second is to begin.
  bool awaits_second() const { return awaits_second_; }
  void BeginSecond() {
    reader_.emplace(file_.fd(), file_.size(), begin_);
    again_.emplace();
    awaits_second_ = false;
  }

  // None at the end of a reading. INTERNAL for a file that cannot be read,
  // ABORTED for one that was other bytes the second time.
  absl::StatusOr<absl::string_view> Next() {
    const absl::StatusOr<absl::string_view> bytes = reader_->Next();
    if (!bytes.ok()) return bytes;
    if (first_) (again_ ? *again_ : *first_).Take(*bytes);
    if (!bytes->empty()) return bytes;
    awaits_second_ = first_ && !again_;
    if (!awaits_second_ && !(first_ == again_)) return InputChanged();
    return bytes;
  }

 private:
  const SharedInput& file_;
  const uint64_t begin_;
  std::optional<ReadAhead> reader_;
  std::optional<Checksum> first_, again_;
  bool awaits_second_ = false;
};

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

  absl::StatusOr<bool> Work(const SharedInput& input, SharedOutput* output,
                            absl::Duration most) override {
    if (!from_) {
      from_.emplace(&input, input.unsettled());
      to_.emplace(output);
      session_.WriteTo(&*to_);
    }
    const absl::Time until = absl::Now() + most;
    do {
      absl::Status status = call_->CheckWanted();
      if (!status.ok()) return status;
      const absl::Duration left = until - absl::Now();
      const absl::StatusOr<bool> more = Step(input, left);
      if (!more.ok() || !*more) return more;
    } while (absl::Now() < until);
    return true;
  }
  uint64_t done_bytes() const override {
    return session_.compressor().taken_bytes();
  }

  absl::Status End(SharedOutput* output,
                   v1::CompressFileResponse* response) override {
    const absl::StatusOr<CompressReport> report = session_.Finish();
    if (!report.ok()) return report.status();
    absl::Status status = output->WriteAt(0, session_.compressor().header());
    if (!status.ok()) return status;
    call_->observer().BytesSent(call_->method(), report->compressed_size);
    absl::StatusOr<v1::CompressionReport> message = session_.ToMessage(*report);
    if (!message.ok()) return message.status();
    *response->mutable_trailer() = *std::move(message);
    return absl::OkStatus();
  }

  uint64_t working_bytes() const override { return session_.working_bytes(); }
  uint64_t kept_bytes() const override { return 2 * request_.Length() + kept_; }

 private:
  // Lets the threads of the call read the file themselves or, where it has only
  // one, reads ahead for it.
  absl::StatusOr<bool> Step(const SharedInput& input, absl::Duration most) {
    const bool first_ended =
        reading_ ? reading_->awaits_second() : taken_ && input.unsettled();
    if (first_ended && !HasSettled(input, most)) return true;
    if (taken_) return from_->ReadAgain(most);
    if (reading_) return ReadOn();
    const bool begun = session_.begun();
    absl::Status status = Reserve(begun ? 0 : kHeaderPart);
    if (!status.ok()) return status;
    const absl::StatusOr<bool> more = session_.TakeFrom(*from_, most);
    if (!more.ok()) return more;
    status = Reserve(0);
    if (!status.ok()) return status;
    if (session_.begun() && !session_.has_threads()) {
      reading_.emplace(&input, done_bytes());
    } else {
      taken_ = !*more;
    }
    return true;
  }

  // Whether a second reading may begin; else waits a little, so that others can
  // be served and the call be cut off.
  bool HasSettled(const SharedInput& input, absl::Duration most) {
    const absl::Time now = absl::Now();
    if (!settled_) settled_ = now + kSettling;
    if (now >= *settled_ || !input.HasWriter()) return true;
    absl::SleepFor(std::min({most, kSettlingStep, *settled_ - now}));
    return false;
  }

  absl::StatusOr<bool> ReadOn() {
    if (reading_->awaits_second()) reading_->BeginSecond();
    const absl::StatusOr<absl::string_view> bytes = reading_->Next();
    if (!bytes.ok()) return bytes.status();
    if (reading_->awaits_second()) return true;
    taken_ = bytes->empty();
    if (taken_ || !reading_->is_first()) return true;
    absl::Status status = Take(*bytes);
    if (!status.ok()) return status;
    return true;
  }

  absl::Status Take(absl::string_view bytes) {
    absl::Status status = session_.TakeFile(bytes);
    if (status.ok()) status = Reserve(bytes.size());
    while (status.ok()) {
      const absl::StatusOr<bool> more = session_.Step();
      if (!more.ok()) return more.status();
      if (!*more) return Reserve(0);
    }
    return status;
  }

  absl::Status Reserve(uint64_t next) {
    return call_->ReserveStream(0, session_.working_bytes(next), kept_bytes());
  }

  const grpc::ByteBuffer request_;
  std::optional<PlacedInput> from_;
  std::optional<PlacedOutput> to_;
  CompressSession session_;  // ends before what it reads and writes
  Call* const call_;
  std::optional<FileReading> reading_;
  bool taken_ = false;  // all of the file
  std::optional<absl::Time> settled_;
  uint64_t kept_ = 0;
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

  absl::StatusOr<bool> Work(const SharedInput& input, SharedOutput* output,
                            absl::Duration most) override {
    if (!from_) from_.emplace(&input, /*twice=*/false);
    if (!to_ && output != nullptr) to_.emplace(output);
    return session_.Restore(&*from_, to_ ? &*to_ : nullptr, most);
  }
  uint64_t done_bytes() const override { return session_.done_bytes(); }

  absl::Status End(SharedOutput*,
                   v1::DecompressFileResponse* response) override {
    const uint64_t size = session_.output_size();
    absl::StatusOr<v1::DecompressionReport> report = session_.Finish();
    if (!report.ok()) return report.status();
    call_->observer().BytesSent(call_->method(), size);
    *response->mutable_trailer() = *std::move(report);
    return absl::OkStatus();
  }

  uint64_t working_bytes() const override { return session_.working_bytes(); }
  uint64_t kept_bytes() const override { return 2 * request_.Length(); }

 private:
  const grpc::ByteBuffer request_;
  std::optional<PlacedInput> from_;
  std::optional<PlacedOutput> to_;
  PlacedDecompressSession session_;  // ends before what it reads and writes
  Call* const call_;
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
