// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/commands.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "client/cli/advice.h"
#include "client/cli/files.h"
#include "client/cli/gate.h"
#include "client/cli/info.h"
#include "client/cli/report_json.h"
#include "client/cli/requests.h"
#include "client/cli/service_connection.h"
#include "client/cli/train.h"
#include "client/cpp/errno_error.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

absl::Status PrintJson(const Json& json, std::FILE* file) {
  const std::string text = Print(json);
  if (std::fputs(text.c_str(), file) < 0 || std::fflush(file) != 0) {
    return ErrnoError(errno, "write",
                      file == stdout ? "/dev/stdout" : "/dev/stderr");
  }
  return absl::OkStatus();
}

// Everything a command works with. Files come first: a wrong path needs no
// server to be found out.
struct Session {
  std::unique_ptr<Input> input;
  std::unique_ptr<Output> output;  // null when the command writes none
  ServiceConnection service;

  // Where the JSON goes: elsewhere than the cache.
  std::FILE* report_file() const {
    return output != nullptr && output->is_stdout() ? stderr : stdout;
  }
};

absl::StatusOr<Session> OpenSession(const Flags& flags) {
  absl::StatusOr<std::unique_ptr<Input>> input =
      Input::Open(flags.input, flags.progress);
  if (!input.ok()) return input.status();
  std::unique_ptr<Output> output;
  if (flags.mode == Mode::kCompress || flags.mode == Mode::kDecompress) {
    absl::StatusOr<std::unique_ptr<Output>> opened = Output::Open(flags.output);
    if (!opened.ok()) return opened.status();
    output = *std::move(opened);
  }
  absl::StatusOr<ServiceConnection> service = ServiceConnection::Open(flags);
  if (!service.ok()) return service.status();
  return Session{*std::move(input), std::move(output), *std::move(service)};
}

absl::Status LogServer(const Client& client) {
  const absl::StatusOr<v1::GetServerInfoResponse> info = client.GetServerInfo();
  if (!info.ok()) return info.status();
  absl::FPrintF(stderr, "service: version %s, format %d, kernels %s\n",
                Printable(info->version()), info->format_version(),
                Printable(info->kernels()));
  return absl::OkStatus();
}

// Whether the service may be told the names of the files: not of standard input
// and output.
bool AreFiles(const Flags& flags, const Session& session) {
  return flags.input != "-" &&
         (session.output == nullptr || !session.output->is_stdout());
}

// By the names of the files where that can be. A gate is held before there is a
// file, so the bytes have to come here.
absl::StatusOr<v1::CompressionReport> MakeArtefact(
    const Flags& flags, const v1::CompressOptions& options, Session* session) {
  const Client& client = session->service.client();
  if (!HasGate(options) && AreFiles(flags, *session)) {
    SharedResult<v1::CompressionReport> report = client.CompressShared(
        options, flags.input, flags.output,
        [&](uint64_t bytes) { session->input->Advance(bytes); });
    if (!report.ok()) return report.status();
    if (report->has_value()) {
      session->output.reset();  // the service has written it
      return **std::move(report);
    }
  }
  return client.Compress(options, session->input.get(), session->output.get());
}

// Measures; also writes the artefact where there is an output.
absl::StatusOr<int> Compress(const Flags& flags, Session* session) {
  v1::CompressOptions options = ToCompressOptions(flags);
  options.set_profile(session->service.profile());
  absl::StatusOr<v1::CompressionReport> report =
      session->output == nullptr
          ? session->service.client().Measure(options, session->input.get())
          : MakeArtefact(flags, options, session);
  if (!report.ok()) return report.status();
  session->input.reset();  // ends the progress bar
  const bool holds = !HasGate(options) || ApplyGate(&*report);
  absl::Status status;
  if (holds && session->output != nullptr) status = session->output->Commit();
  if (status.ok()) {
    status = PrintJson(CompressionJson(*report, flags.verbose),
                       session->report_file());
  }
  if (!status.ok()) return status;
  // Where the report takes standard error, it has the warnings.
  if (session->report_file() == stdout) {
    PrintWarnings(*report);
    Advise(flags, options, session->service.client(), *report, holds);
  }
  return holds ? kExitOk : kExitGate;
}

absl::StatusOr<v1::DecompressionReport> Restore(const Flags& flags,
                                                Session* session) {
  const Client& client = session->service.client();
  const v1::DecompressOptions options = ToDecompressOptions(flags);
  if (AreFiles(flags, *session)) {
    SharedResult<v1::DecompressionReport> report = client.DecompressShared(
        options, flags.input, options.verify_only() ? "" : flags.output,
        [&](uint64_t bytes) { session->input->Advance(bytes); });
    if (!report.ok()) return report.status();
    if (report->has_value()) {
      session->output.reset();  // the service has written it
      return **std::move(report);
    }
  }
  return client.Decompress(options, session->input.get(),
                           session->output.get());
}

// Verifies; also writes what is restored where there is an output.
absl::StatusOr<int> Decompress(const Flags& flags, Session* session) {
  const absl::StatusOr<v1::DecompressionReport> report =
      Restore(flags, session);
  session->input.reset();  // ends the progress bar
  const bool verify = flags.mode == Mode::kVerify;
  absl::Status status = report.status();
  if (verify &&
      (absl::IsDataLoss(status) || absl::IsFailedPrecondition(status))) {
    status.Update(PrintJson(DamagedJson(status), session->report_file()));
  }
  if (status.ok() && session->output != nullptr) {
    status = session->output->Commit();
  }
  if (status.ok()) {
    status =
        PrintJson(verify ? VerifiedJson(*report) : DecompressionJson(*report),
                  session->report_file());
  }
  if (!status.ok()) return status;
  return kExitOk;
}

absl::StatusOr<int> Info(const Flags& flags) {
  absl::StatusOr<std::unique_ptr<Input>> input =
      Input::Open(flags.input, ProgressMode::kNever);
  if (!input.ok()) return input.status();
  const absl::StatusOr<Json> json =
      InfoJson(input->get(),
               {.keys = flags.key_patterns, .values = flags.value_patterns});
  if (!json.ok()) return json.status();
  absl::Status status = PrintJson(*json, stdout);
  if (!status.ok()) return status;
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> RunCommand(const Flags& flags) {
  if (flags.mode == Mode::kInfo) return Info(flags);
  if (flags.mode == Mode::kTrain) {
    const absl::StatusOr<Json> json = Train(flags);
    if (!json.ok()) return json.status();
    if (absl::Status status = PrintJson(*json, stdout); !status.ok()) {
      return status;
    }
    return kExitOk;
  }
  absl::StatusOr<Session> session = OpenSession(flags);
  if (!session.ok()) return session.status();
  if (flags.verbose) {
    absl::Status status = LogServer(session->service.client());
    if (!status.ok()) return session->service.Explain(status);
  }
  const bool restores =
      flags.mode == Mode::kDecompress || flags.mode == Mode::kVerify;
  absl::StatusOr<int> code =
      restores ? Decompress(flags, &*session) : Compress(flags, &*session);
  if (!code.ok()) return session->service.Explain(code.status());
  return code;
}

}  // namespace kvcompress::cli
