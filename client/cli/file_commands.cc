// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/file_commands.h"

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cli/files.h"
#include "client/cli/gate.h"
#include "client/cli/info.h"
#include "client/cli/report_json.h"
#include "client/cli/requests.h"
#include "client/cpp/status.h"
#include "kvcompress/client.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kEmptyFile = "the file is empty: ";

// Everything that a task works with.
struct Session {
  const Flags& flags;
  const FileTask& task;
  std::unique_ptr<Input> input;
  std::unique_ptr<Output> output;  // null when the command writes none
  const ServiceConnection* service = nullptr;

  const Client& client() const { return service->client(); }
};

absl::Status OpenFiles(Session* session) {
  absl::StatusOr<std::unique_ptr<Input>> input = Input::Open(
      session->task.input, session->flags.progress, session->task.label);
  if (!input.ok()) return input.status();
  session->input = *std::move(input);
  if (session->task.output.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Output>> output =
      Output::Open(session->task.output, session->flags, session->input.get());
  if (!output.ok()) return output.status();
  session->output = *std::move(output);
  return absl::OkStatus();
}

// Whether the service may be told the names of the files: not of standard input
// and output.
bool AreFiles(const Session& session) {
  return session.task.input != "-" &&
         (session.output == nullptr || !session.output->is_stdout());
}

// By the names of the files where that can be. A gate is held before there is a
// file, so the bytes have to come here.
absl::StatusOr<v1::CompressionReport> MakeArtefact(
    const v1::CompressOptions& options, Session* session) {
  if (!HasGate(options) && AreFiles(*session)) {
    SharedResult<v1::CompressionReport> report =
        session->client().CompressShared(
            options, session->task.input, session->task.output,
            [&](uint64_t bytes) { session->input->Advance(bytes); },
            session->flags.force);
    if (!report.ok()) return report.status();
    if (report->has_value()) {
      session->output.reset();  // the service has written it
      return **std::move(report);
    }
  }
  return session->client().Compress(options, session->input.get(),
                                    session->output.get());
}

// Measures; also writes the artefact where there is an output.
absl::Status Compress(Session* session, FileResult* result) {
  v1::CompressOptions options = ToCompressOptions(session->flags);
  options.set_profile(session->service->profile());
  absl::StatusOr<v1::CompressionReport> report =
      session->output == nullptr
          ? session->client().Measure(options, session->input.get())
          : MakeArtefact(options, session);
  if (!report.ok()) return report.status();
  session->input.reset();  // ends the progress bar
  result->holds_bounds = !HasGate(options) || ApplyGate(&*report);
  if (result->holds_bounds && session->output != nullptr) {
    absl::Status status = session->output->Commit();
    if (!status.ok()) return status;
  }
  result->json = CompressionJson(*report, session->flags.verbose);
  result->report = *std::move(report);
  return absl::OkStatus();
}

absl::StatusOr<v1::DecompressionReport> Restore(Session* session) {
  const v1::DecompressOptions options = ToDecompressOptions(session->flags);
  if (AreFiles(*session)) {
    SharedResult<v1::DecompressionReport> report =
        session->client().DecompressShared(
            options, session->task.input,
            options.verify_only() ? "" : session->task.output,
            [&](uint64_t bytes) { session->input->Advance(bytes); },
            session->flags.force);
    if (!report.ok()) return report.status();
    if (report->has_value()) {
      session->output.reset();  // the service has written it
      return **std::move(report);
    }
  }
  return session->client().Decompress(options, session->input.get(),
                                      session->output.get());
}

// Whether a file is no safetensors file (file_type.h).
bool IsOfOtherType(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return absl::IsInvalidArgument(status) && detail &&
         detail->reason == "INVALID_HEADER";
}

// Verifies; also writes what is restored where there is an output.
absl::Status Decompress(Session* session, FileResult* result) {
  const absl::StatusOr<v1::DecompressionReport> report = Restore(session);
  session->input.reset();  // ends the progress bar
  const bool verify = session->flags.mode == Mode::kVerify;
  absl::Status status = report.status();
  if (verify && (absl::IsDataLoss(status) ||
                 absl::IsFailedPrecondition(status) || IsOfOtherType(status))) {
    result->json = DamagedJson(status);
  }
  if (status.ok() && session->output != nullptr) {
    status = session->output->Commit();
  }
  if (!status.ok()) return status;
  result->json = verify ? VerifiedJson(*report) : DecompressionJson(*report);
  return absl::OkStatus();
}

absl::Status Describe(Session* session, FileResult* result) {
  absl::StatusOr<Json> json =
      InfoJson(session->input.get(), {.keys = session->flags.key_patterns,
                                      .values = session->flags.value_patterns});
  if (!json.ok()) return json.status();
  result->json = *std::move(json);
  return absl::OkStatus();
}

// Whether the error is that the file has ended, of one that has nothing in it.
bool IsOfEmptyFile(const absl::Status& status, const std::string& path) {
  struct stat file;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail && detail->reason == "TRUNCATED" &&
         stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) &&
         file.st_size == 0;
}

}  // namespace

FileResult RunFile(const Flags& flags, const FileTask& task,
                   LazyConnection* service) {
  FileResult result;
  Session session{.flags = flags, .task = task};
  result.error = OpenFiles(&session);
  if (flags.mode == Mode::kVerify && IsOfOtherType(result.error)) {
    result.json = DamagedJson(result.error);
  }
  if (!result.error.ok()) return result;
  result.to_stdout = session.output != nullptr && session.output->is_stdout();
  if (flags.mode == Mode::kInfo) {
    result.error = Describe(&session, &result);
    if (IsOfEmptyFile(result.error, task.input)) {
      result.error = Annotate(result.error, kEmptyFile);
    }
    return result;
  }
  const absl::StatusOr<const ServiceConnection*> opened = service->Get();
  if (!opened.ok()) {
    result.error = opened.status();
    return result;
  }
  session.service = *opened;
  const bool restores =
      flags.mode == Mode::kDecompress || flags.mode == Mode::kVerify;
  result.error =
      restores ? Decompress(&session, &result) : Compress(&session, &result);
  if (absl::IsAlreadyExists(result.error)) {
    result.error = OutputError(result.error, task.output);
  }
  if (!result.error.ok()) {
    result.error = session.service->Explain(result.error);
  }
  if (IsOfEmptyFile(result.error, task.input)) {
    result.error = Annotate(result.error, kEmptyFile);
  }
  return result;
}

}  // namespace kvcompress::cli
