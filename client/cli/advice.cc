// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/advice.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/files.h"
#include "client/cli/gate.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

constexpr size_t kMaxCodecs = 3;

bool CanBeMeasuredAgain(const Flags& flags) {
  struct stat file;
  return flags.input != "-" && stat(flags.input.c_str(), &file) == 0 &&
         S_ISREG(file.st_mode) &&
         static_cast<uint64_t>(file.st_size) <= kMaxMeasuredAgain;
}

// What `auto` gives on the input, under the same bounds.
absl::StatusOr<v1::CompressionReport> MeasureAuto(const Flags& flags,
                                                  v1::CompressOptions options,
                                                  const Client& client) {
  options.set_codec("auto");
  options.set_effort(v1::EFFORT_FAST);
  options.set_report_tensors(true);
  absl::StatusOr<std::unique_ptr<Input>> input =
      Input::Open(flags.input, ProgressMode::kNever);
  if (!input.ok()) return input.status();
  absl::StatusOr<v1::CompressionReport> report =
      client.Measure(options, input->get());
  if (report.ok() && HasGate(options)) ApplyGate(&*report);
  return report;
}

// "-codec auto -effort fast holds them at 4.58x (ecsq for 40 tensors, lossless
// for 20)".
std::string DescribeHolding(const v1::CompressionReport& report) {
  std::map<std::string, int> tensors;
  for (const v1::TensorReport& tensor : report.tensors()) {
    ++tensors[tensor.codec()];
  }
  std::vector<std::pair<int, std::string>> codecs;
  codecs.reserve(tensors.size());
  for (const auto& [codec, count] : tensors) codecs.emplace_back(count, codec);
  std::sort(codecs.begin(), codecs.end(), std::greater<>());
  std::vector<std::string> parts;
  int others = 0;
  for (size_t i = 0; i < codecs.size(); ++i) {
    const auto& [count, codec] = codecs[i];
    if (i >= kMaxCodecs) {
      others += count;
    } else {
      parts.push_back(absl::StrCat(Printable(codec), " for ", count,
                                   i > 0        ? ""
                                   : count == 1 ? " tensor"
                                                : " tensors"));
    }
  }
  if (others > 0) parts.push_back(absl::StrCat("other codecs for ", others));
  return absl::StrFormat("-codec auto -effort fast holds them at %.2fx (%s)",
                         report.compression_ratio(),
                         absl::StrJoin(parts, ", "));
}

std::string Finding(const Flags& flags, const v1::CompressOptions& options,
                    const Client& client) {
  if (!CanBeMeasuredAgain(flags)) {
    return "to see which codec holds them, measure the file with the same "
           "flags and -metrics-only -codec auto -effort fast";
  }
  const absl::StatusOr<v1::CompressionReport> report =
      MeasureAuto(flags, options, client);
  if (!report.ok() || !report->verdict().passed() ||
      report->tensors_failed() > 0) {
    return "measured on this file, not even -codec auto holds them";
  }
  return absl::StrCat("measured on this file, ", DescribeHolding(*report));
}

}  // namespace

void PrintWarnings(const v1::CompressionReport& report,
                   absl::string_view prefix) {
  for (const v1::Warning& warning : report.warnings()) {
    const std::string where =
        warning.tensor().empty()
            ? ""
            : absl::StrCat(" (tensor ", QuoteName(warning.tensor()), ")");
    absl::FPrintF(stderr, "Warning: %s%s%s [%s]\n", Printable(prefix),
                  Printable(warning.message()), where,
                  Printable(warning.code()));
  }
}

void Advise(const Flags& flags, const v1::CompressOptions& options,
            const Client& client, const v1::CompressionReport& report,
            bool holds) {
  const bool default_misses =
      !HasGate(options) && flags.default_codec && report.tensors_failed() > 0;
  if (holds && !default_misses) return;
  const std::string misses =
      HasGate(options)
          ? absl::StrCat(Printable(report.codec()), " does not hold the bounds")
          : absl::StrCat(Printable(report.codec()),
                         " misses the default thresholds in ",
                         report.tensors_failed(), " of ", report.tensor_count(),
                         " tensors");
  absl::FPrintF(stderr, "Hint: %s; %s\n", misses,
                Finding(flags, options, client));
}

}  // namespace kvcompress::cli
