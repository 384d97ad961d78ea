// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// kv-compress: compresses KV caches and measures what that costs.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/completion.h"
#include "client/cli/flags.h"
#include "client/cli/signals.h"
#include "kvcompress/error.h"
#include "kvcompress/kernels.h"
#include "kvcompress/version.h"
#include "tuning.h"

namespace {

int Fail(const absl::Status& status) {
  absl::FPrintF(stderr, "Error: %s\n", kvcompress::Printable(status.message()));
  return kvcompress::cli::kExitError;
}

}  // namespace

int main(int argc, char** argv) {
  namespace cli = kvcompress::cli;
  kvcompress::TuneProcess();
  // Errors are reported once, by this program; gRPC's own log only on request.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is no other thread yet.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const absl::StatusOr<cli::Flags> flags =
      cli::ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
  if (!flags.ok()) {
    absl::FPrintF(stderr, "Error: %s\nRun kv-compress -help for usage.\n",
                  kvcompress::Printable(flags.status().message()));
    return cli::kExitError;
  }
  if (flags->mode == cli::Mode::kHelp) {
    absl::PrintF("%s", cli::Usage());
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
  // For tests and comparisons; of the embedded service.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment now.
  const char* const kernels = std::getenv("KVCOMPRESS_KERNELS");
  if (kernels != nullptr && *kernels != '\0') {
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
