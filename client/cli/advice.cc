// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/advice.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/columns.h"
#include "client/cli/files.h"
#include "client/cli/gate.h"
#include "client/cli/memory_stream.h"
#include "client/cli/sample.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

constexpr absl::string_view kOthers =
    "; kv-compress compare shows what other codecs keep\n";

// What is measured: the input, or a sample of it.
struct Measured {
  std::unique_ptr<Sample> sample;  // null where it is the input
  std::unique_ptr<ByteSource> source;
};

// Nothing where it cannot be measured again.
absl::StatusOr<Measured> MeasuredAgain(const Flags& flags) {
  struct stat file;
  if (flags.input == "-" || stat(flags.input.c_str(), &file) != 0 ||
      !S_ISREG(file.st_mode)) {
    return absl::NotFoundError("no file");
  }
  Measured measured;
  if (static_cast<uint64_t>(file.st_size) <= kMaxMeasuredAgain) {
    absl::StatusOr<std::unique_ptr<Input>> input =
        Input::Open(flags.input, ProgressMode::kNever);
    if (!input.ok()) return input.status();
    measured.source = *std::move(input);
    return measured;
  }
  absl::StatusOr<Sample> sample = SampleOf(flags.input, kMeasuredSample);
  if (!sample.ok()) return sample.status();
  measured.sample = std::make_unique<Sample>(*std::move(sample));
  measured.source = std::make_unique<MemorySource>(measured.sample->file);
  return measured;
}

// What `auto` gives on the input, under the same bounds.
absl::StatusOr<v1::CompressionReport> MeasureAuto(v1::CompressOptions options,
                                                  const Client& client,
                                                  ByteSource* source) {
  options.set_codec("auto");
  options.set_effort(v1::EFFORT_FAST);
  options.set_report_tensors(true);
  absl::StatusOr<v1::CompressionReport> report =
      client.Measure(options, source);
  if (report.ok() && HasGate(options)) ApplyGate(&*report);
  return report;
}

// "-codec auto -effort fast holds them at 4.58x (ecsq for 40 tensors, lossless
// for 20)"; `about` stands before the ratio.
std::string DescribeHolding(const v1::CompressionReport& report,
                            absl::string_view about) {
  std::map<std::string, uint64_t> tensors;
  for (const v1::TensorReport& tensor : report.tensors()) {
    ++tensors[Printable(tensor.codec())];
  }
  return absl::StrFormat("-codec auto -effort fast holds them at %s%.2fx (%s)",
                         about, report.compression_ratio(),
                         CodecCountsText(tensors));
}

std::string Finding(const Flags& flags, const v1::CompressOptions& options,
                    const Client& client) {
  absl::StatusOr<Measured> measured = MeasuredAgain(flags);
  if (!measured.ok()) {
    return "to see which codec holds them, measure the file with the same "
           "flags and -metrics-only -codec auto -effort fast";
  }
  const size_t tensors =
      measured->sample == nullptr ? 0 : measured->sample->tensors;
  const std::string on = tensors == 0 ? "measured on this file, "
                                      : absl::StrCat("measured on a sample of ",
                                                     tensors, " tensors, ");
  const absl::StatusOr<v1::CompressionReport> report =
      MeasureAuto(options, client, measured->source.get());
  if (!report.ok() || !report->verdict().passed() ||
      report->tensors_failed() > 0) {
    return absl::StrCat(on, "not even -codec auto holds them");
  }
  return absl::StrCat(on,
                      DescribeHolding(*report, tensors == 0 ? "" : "about "));
}

// "SNR 14.9 dB, RMSE 0.52"; an SNR may not be known.
std::string ErrorText(const v1::QualityMetrics& metrics) {
  return absl::StrCat(metrics.has_snr_db()
                          ? absl::StrFormat("SNR %.1f dB, ", metrics.snr_db())
                          : "",
                      absl::StrFormat("RMSE %.4g", metrics.rmse()));
}

}  // namespace

std::string WarningLines(const v1::CompressionReport& report,
                         absl::string_view prefix) {
  std::string lines;
  for (const v1::Warning& warning : report.warnings()) {
    const std::string where =
        warning.tensor().empty()
            ? ""
            : absl::StrCat(" (tensor ", QuoteName(warning.tensor()), ")");
    absl::StrAppend(&lines, "Warning: ", Printable(prefix),
                    Printable(warning.message()), where, " [",
                    Printable(warning.code()), "]\n");
  }
  return lines;
}

bool IsPoor(const v1::CompressionReport& report) {
  return report.verdict().level() == v1::QUALITY_LEVEL_POOR;
}

std::string PoorLine(const v1::CompressionReport& report) {
  return absl::StrCat("Warning: the quality with ", Printable(report.codec()),
                      " is POOR: ", ErrorText(report.metrics()), kOthers);
}

std::string PoorLine(size_t poor, size_t files) {
  return absl::StrCat("Warning: the quality of ", poor, " of ", files,
                      files == 1 ? " file" : " files", " is POOR", kOthers);
}

bool Advise(const Flags& flags, const v1::CompressOptions& options,
            const Client& client, const v1::CompressionReport& report,
            bool holds) {
  const bool default_misses =
      !HasGate(options) && flags.default_codec && report.tensors_failed() > 0;
  if (holds && !default_misses) return false;
  const std::string misses =
      HasGate(options)
          ? absl::StrCat(
                Printable(report.codec()), " does not hold the bounds",
                flags.mode == Mode::kCompress ? ", and no file is written" : "")
          : absl::StrCat(Printable(report.codec()),
                         " misses the default thresholds in ",
                         report.tensors_failed(), " of ", report.tensor_count(),
                         " tensors");
  absl::FPrintF(stderr, "Hint: %s; %s\n", misses,
                Finding(flags, options, client));
  return true;
}

}  // namespace kvcompress::cli
