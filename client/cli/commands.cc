// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/commands.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/cli/advice.h"
#include "client/cli/batch.h"
#include "client/cli/bench.h"
#include "client/cli/bench_report.h"
#include "client/cli/compare.h"
#include "client/cli/compare_files.h"
#include "client/cli/file_commands.h"
#include "client/cli/printing.h"
#include "client/cli/report_json.h"
#include "client/cli/requests.h"
#include "client/cli/service_connection.h"
#include "client/cli/text_tables.h"
#include "client/cli/train.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

// What is said in addition to the result, on standard error.
void PrintRemarks(const Flags& flags, const FileResult& result,
                  LazyConnection* service) {
  const absl::StatusOr<const ServiceConnection*> opened = service->Get();
  if (!result.report || !opened.ok()) return;
  absl::FPrintF(stderr, "%s", WarningLines(*result.report));
  v1::CompressOptions options = ToCompressOptions(flags);
  options.set_profile((*opened)->profile());
  const bool advised = Advise(flags, options, (*opened)->client(),
                              *result.report, result.holds_bounds);
  // One line about the quality is enough.
  if (!advised && IsPoor(*result.report)) {
    absl::FPrintF(stderr, "%s", PoorLine(*result.report));
  }
}

// Whether the name of an input says what its output may be called: not of what
// a shell makes, such as /dev/fd/63.
absl::Status CheckNamed(const std::string& input) {
  std::error_code ignored;
  if (!std::filesystem::exists(input, ignored) ||
      std::filesystem::is_regular_file(input, ignored) ||
      std::filesystem::is_directory(input, ignored)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "-output is required: ", input,
      " is no regular file, so no name for the result follows from its name"));
}

absl::StatusOr<int> RunOne(const Flags& flags) {
  LazyConnection service(flags);
  const bool writes = Writes(flags.mode);
  std::string output = writes ? flags.output : "";
  if (writes && output.empty()) {
    if (absl::Status status = CheckNamed(flags.input); !status.ok()) {
      return status;
    }
    output = DefaultOutput(flags.mode, flags.input);
  }
  const FileTask task = {
      .input = flags.input, .output = std::move(output), .label = ""};
  const FileResult result = RunFile(flags, task, &service);
  // The result goes elsewhere than the cache; there it has the warnings too.
  std::FILE* const file = result.to_stdout ? stderr : stdout;
  absl::Status status;
  if (!result.json.is_null() && !(result.to_stdout && flags.quiet)) {
    status = PrintText(
        PrintsTable(flags, file)
            ? ResultTable(flags.mode, task.input,
                          result.holds_bounds ? task.output : "", result.json)
            : Print(result.json),
        file);
  }
  status.Update(result.error);
  if (!status.ok()) return status;
  if (file == stdout && !flags.quiet) PrintRemarks(flags, result, &service);
  return ExitStatus(result);
}

absl::StatusOr<int> RunComparison(const Flags& flags) {
  LazyConnection service(flags);
  const absl::StatusOr<const ServiceConnection*> opened = service.Get();
  if (!opened.ok()) return opened.status();
  const FileTask task = {.input = flags.input, .output = "", .label = ""};
  const absl::StatusOr<Json> json = CompareCodecs(flags, task, **opened);
  if (!json.ok()) return (*opened)->Explain(json.status());
  absl::Status status = PrintText(
      PrintsTable(flags, stdout) ? ComparisonTable(*json) : Print(*json),
      stdout);
  if (!status.ok()) return status;
  return HasError(*json) ? kExitError : kExitOk;
}

absl::StatusOr<int> RunBench(const Flags& flags) {
  const absl::StatusOr<Json> json = MeasureServer(flags);
  if (!json.ok()) return json.status();
  absl::Status status = PrintText(
      PrintsTable(flags, stdout) ? BenchTable(*json) : Print(*json), stdout);
  if (!status.ok()) return status;
  return HasFailure(*json) ? kExitError : kExitOk;
}

}  // namespace

absl::StatusOr<int> RunCommand(const Flags& flags) {
  if (flags.mode == Mode::kTrain) {
    const absl::StatusOr<Json> json = Train(flags);
    if (!json.ok()) return json.status();
    absl::Status status =
        PrintText(PrintsTable(flags, stdout) ? ProfileTable(flags.output, *json)
                                             : Print(*json),
                  stdout);
    if (!status.ok()) return status;
    return kExitOk;
  }
  if (flags.mode == Mode::kBench) return RunBench(flags);
  if (flags.mode == Mode::kCompare) {
    return IsBatch(flags) ? RunComparisons(flags) : RunComparison(flags);
  }
  return IsBatch(flags) ? RunBatch(flags) : RunOne(flags);
}

}  // namespace kvcompress::cli
