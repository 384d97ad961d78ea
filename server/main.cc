// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// kv-compressd: the server. See OPERATIONS.md.

#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "config.h"
#include "kvcompress/error.h"
#include "kvcompress/kernels.h"
#include "lifecycle.h"
#include "memory_limit.h"
#include "probe.h"
#include "signals.h"
#include "standard_descriptors.h"
#include "telemetry/logging.h"
#include "tuning.h"

namespace {

// Below the timeouts that those who run probes give them.
constexpr absl::Duration kProbeTimeout = absl::Seconds(4);

}  // namespace

int main(int argc, char** argv) {
  kvcompress::OpenStandardDescriptors();
  const absl::StatusOr<kvcompress::CommandLine> line =
      kvcompress::ParseCommandLine(argc, argv);
  if (!line.ok()) {
    std::fprintf(stderr,
                 "kv-compressd: %s\nRun kv-compressd --help for usage.\n",
                 kvcompress::Printable(line.status().message()).c_str());
    return 1;
  }
  if (line->answer.has_value()) {
    std::fputs(line->answer->c_str(), stdout);
    return 0;
  }

  const std::string& kernels = line->options.kernels;
  if (kernels.empty() || kernels == "amx") kvcompress::AllowTiles();
  if (!kernels.empty()) {
    const absl::Status selected = kvcompress::SelectKernels(kernels);
    if (!selected.ok()) {
      std::fprintf(stderr, "kv-compressd: --kernels: %s\n",
                   kvcompress::Printable(selected.message()).c_str());
      return 1;
    }
  }

  if (line->check_only) {
    for (const std::string& warning : line->warnings) {
      std::fprintf(stderr, "kv-compressd: warning: %s\n", warning.c_str());
    }
    const absl::Status status = kvcompress::CheckConfig(line->options);
    if (!status.ok()) {
      std::fprintf(stderr, "kv-compressd: %s\n",
                   kvcompress::Printable(status.message()).c_str());
      return 1;
    }
    std::puts("the configuration is valid");
    return 0;
  }

  if (line->probe_only) {
    const absl::Status status = kvcompress::Probe(line->options, kProbeTimeout);
    if (!status.ok()) {
      std::fprintf(stderr, "kv-compressd: %s\n",
                   kvcompress::Printable(status.message()).c_str());
      return 1;
    }
    std::puts("SERVING");
    return 0;
  }

  kvcompress::TuneProcess();
  kvcompress::BoundReadsOfGrpc();
  // A file that grows beyond a limit is an error of its call.
  std::signal(SIGXFSZ, SIG_IGN);
  kvcompress::StopSignals signals;
  kvcompress::KeepGrpc();
  kvcompress::SetUpLogging(line->options.log_level, line->options.log_format);
  for (const std::string& warning : line->warnings) {
    spdlog::warn("{}", warning);
  }
  const absl::Status status = kvcompress::RunServer(line->options, &signals);
  if (!status.ok()) {
    spdlog::error("{}", std::string(status.message()));
    return 1;
  }
  return 0;
}
