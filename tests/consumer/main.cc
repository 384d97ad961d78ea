// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a user of the installed library writes: compresses a file over a server,
// and prints the ratio. Usage: consumer TARGET INPUT OUTPUT

#include <cstdio>
#include <string>

#include "kvcompress/client.h"
#include "kvcompress/codec.h"
#include "kvcompress/file_source.h"
#include "kvcompress/output_file.h"
#include "kvcompress/version.h"

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "consumer: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return Fail(absl::InvalidArgumentError("three arguments"));
  auto source = kvcompress::FileSource::Open(argv[2]);
  if (!source.ok()) return Fail(source.status());
  auto output = kvcompress::OutputFile::Create(argv[3]);
  if (!output.ok()) return Fail(output.status());
  const kvcompress::Client client(argv[1]);
  const auto report = client.Compress({}, source->get(), output->get());
  if (!report.ok()) return Fail(report.status());
  const absl::Status published = (*output)->Commit();
  if (!published.ok()) return Fail(published);
  std::printf("%s %zu codecs, %.3f\n", kvcompress::kVersion,
              kvcompress::AllCodecs().size(), report->compression_ratio());
  return 0;
}
