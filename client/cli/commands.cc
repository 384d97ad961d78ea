// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/commands.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/advice.h"
#include "client/cli/batch.h"
#include "client/cli/compare.h"
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
  PrintWarnings(*result.report);
  v1::CompressOptions options = ToCompressOptions(flags);
  options.set_profile((*opened)->profile());
  Advise(flags, options, (*opened)->client(), *result.report,
         result.holds_bounds);
}

absl::StatusOr<int> RunOne(const Flags& flags) {
  LazyConnection service(flags);
  const bool writes =
      flags.mode == Mode::kCompress || flags.mode == Mode::kDecompress;
  const FileTask task = {
      .input = flags.input, .output = writes ? flags.output : "", .label = ""};
  const FileResult result = RunFile(flags, task, &service);
  // The result goes elsewhere than the cache; there it has the warnings too.
  std::FILE* const file = result.to_stdout ? stderr : stdout;
  absl::Status status;
  if (!result.json.is_null() && !(result.to_stdout && flags.quiet)) {
    status = PrintText(
        PrintsTable(flags, file)
            ? ResultTable(flags.mode, task.input, task.output, result.json)
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
  const absl::StatusOr<Json> json = CompareCodecs(flags, **opened);
  if (!json.ok()) return (*opened)->Explain(json.status());
  absl::Status status = PrintText(
      PrintsTable(flags, stdout) ? ComparisonTable(*json) : Print(*json),
      stdout);
  if (!status.ok()) return status;
  for (const Json& row : json->at("codecs")) {
    if (row.contains("error")) return kExitError;
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> RunCommand(const Flags& flags) {
  if (flags.mode == Mode::kTrain) {
    const absl::StatusOr<Json> json = Train(flags);
    if (!json.ok()) return json.status();
    absl::Status status = PrintText(Print(*json), stdout);
    if (!status.ok()) return status;
    return kExitOk;
  }
  if (flags.mode == Mode::kCompare) return RunComparison(flags);
  return IsBatch(flags) ? RunBatch(flags) : RunOne(flags);
}

}  // namespace kvcompress::cli
