// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Compresses a safetensors file over a server and prints the result.
// Usage: compress_file TARGET INPUT OUTPUT

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "kvcompress/client.h"
#include "kvcompress/file_source.h"
#include "kvcompress/output_file.h"

namespace {

absl::Status CompressFile(const std::string& target, const std::string& input,
                          const std::string& output) {
  auto source = kvcompress::FileSource::Open(input);
  if (!source.ok()) return source.status();
  auto artefact = kvcompress::OutputFile::Create(
      output, {.inputs = {(*source)->identity()}});
  if (!artefact.ok()) return artefact.status();

  // Without a codec: auto at effort fast, which holds the default thresholds.
  const kvcompress::v1::CompressOptions options;
  const kvcompress::Client client(target);
  const auto report = client.Compress(options, source->get(), artefact->get());
  if (!report.ok()) return report.status();
  std::printf("%.2fx smaller, RMSE %.4f\n", report->compression_ratio(),
              report->metrics().rmse());

  // The output file appears here, complete, or never.
  return (*artefact)->Commit();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: compress_file TARGET INPUT OUTPUT\n");
    return 1;
  }
  const absl::Status status = CompressFile(argv[1], argv[2], argv[3]);
  if (!status.ok()) {
    std::fprintf(stderr, "compress_file: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
