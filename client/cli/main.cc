// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// kv-compress: compresses KV caches and measures what that costs.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/cli/commands.h"
#include "client/cli/completion.h"
#include "client/cli/flags.h"
#include "client/cli/help.h"
#include "client/cli/signals.h"
#include "kvcompress/error.h"
#include "kvcompress/kernels.h"
#include "kvcompress/output_file.h"
#include "kvcompress/version.h"
#include "standard_descriptors.h"
#include "tuning.h"

namespace {

int Fail(const absl::Status& status) {
  absl::FPrintF(stderr, "Error: %s\n", kvcompress::Printable(status.message()));
  return kvcompress::cli::kExitError;
}

}  // namespace

int main(int argc, char** argv) {
  namespace cli = kvcompress::cli;
  const bool output_closed = kvcompress::OpenStandardDescriptors().output;
  kvcompress::TuneProcess();
  // Errors are reported once, by this program; gRPC's own log only on request.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is no other thread yet.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const absl::StatusOr<cli::Flags> flags =
      cli::ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
  if (!flags.ok()) {
    absl::FPrintF(stderr, "Error: %s\n%sRun kv-compress -help for usage.\n",
                  kvcompress::Printable(flags.status().message()),
                  argc == 1 ? cli::ShortUsage() : "");
    return cli::kExitError;
  }
  if (flags->mode == cli::Mode::kHelp) {
    absl::PrintF("%s", cli::Usage(flags->command));
    return cli::kExitOk;
  }
  if (flags->mode == cli::Mode::kVersion) {
    absl::PrintF("kv-compress %s (API %s, artefact format %d)\n",
                 kvcompress::kVersion, kvcompress::kApiVersion,
                 kvcompress::kFormatVersion);
    return cli::kExitOk;
  }
  if (flags->mode == cli::Mode::kManual) {
    absl::PrintF("%s", cli::ManualPage());
    return cli::kExitOk;
  }
  if (flags->mode == cli::Mode::kCompletion) {
    const absl::StatusOr<std::string> script =
        cli::CompletionScript(flags->shell);
    if (!script.ok()) return Fail(script.status());
    absl::PrintF("%s", *script);
    return cli::kExitOk;
  }
  if (output_closed && kvcompress::IsStandardOutput(flags->output)) {
    return Fail(absl::FailedPreconditionError(
        "write output: standard output is closed"));
  }
  // For tests and comparisons; of the embedded service.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment now.
  const char* const named = std::getenv("KVCOMPRESS_KERNELS");
  const absl::string_view kernels = named == nullptr ? "" : named;
  if (kernels.empty() || kernels == "amx") kvcompress::AllowTiles();
  if (!kernels.empty()) {
    const absl::Status selected = kvcompress::SelectKernels(kernels);
    if (!selected.ok()) {
      absl::FPrintF(stderr, "Error: KVCOMPRESS_KERNELS: %s\n",
                    kvcompress::Printable(selected.message()));
      return cli::kExitError;
    }
  }
  kvcompress::KeepGrpc();
  cli::InstallSignalHandlers();
  const absl::StatusOr<int> code = cli::RunCommand(*flags);
  if (code.ok()) return *code;
  return Fail(code.status());
}
