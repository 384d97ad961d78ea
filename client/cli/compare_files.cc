// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/compare_files.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/batch.h"
#include "client/cli/commands.h"
#include "client/cli/compare.h"
#include "client/cli/printing.h"
#include "client/cli/report_json.h"
#include "client/cli/service_connection.h"
#include "client/cli/text_tables.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

// An SNR that is not known is that of an exact reconstruction.
double SnrOf(const Json& snr) {
  return snr.is_null() ? std::numeric_limits<double>::infinity()
                       : snr.get<double>();
}

// What several files came to with one codec.
struct Total {
  Json codec, profile;
  uint64_t files = 0;
  uint64_t failed = 0;
  uint64_t original = 0;
  uint64_t compressed = 0;
  uint64_t tensors = 0;
  uint64_t within = 0;
  Json snr;           // the lowest
  Json keys_snr;      // the lowest centred one
  Json worst_tensor;  // of all files
  double compress_seconds = 0;
  double restore_seconds = 0;

  void Add(const Json& input, const Json& row) {
    ++files;
    if (row.contains("error")) {
      ++failed;
      return;
    }
    const bool first = files - failed == 1;
    const auto bytes = row.at("original_size_bytes").get<uint64_t>();
    original += bytes;
    compressed += row.at("compressed_size_bytes").get<uint64_t>();
    tensors += row.at("tensor_count").get<uint64_t>();
    within += row.at("tensors_within_bounds").get<uint64_t>();
    if (first || SnrOf(row.at("snr_db")) < SnrOf(snr)) snr = row.at("snr_db");
    const Json& keys = row.at("centred_snr_db");
    if (SnrOf(keys) < SnrOf(keys_snr)) keys_snr = keys;
    AddWorst(input, row.at("worst_tensor"));
    compress_seconds += Seconds(bytes, row.at("compress_mb_per_second"));
    restore_seconds += Seconds(bytes, row.at("restore_mb_per_second"));
  }

  Json ToJson() const {
    Json json = {{"codec", codec},
                 {"profile", profile},
                 {"files", files},
                 {"failed", failed}};
    if (failed == files) return json;
    json["tensors_within_bounds"] = within;
    json["tensor_count"] = tensors;
    json["compress_mb_per_second"] = Speed(compress_seconds);
    json["restore_mb_per_second"] = Speed(restore_seconds);
    json["compression_ratio"] =
        static_cast<double>(original) /
        static_cast<double>(std::max<uint64_t>(compressed, 1));
    json["original_size_bytes"] = original;
    json["compressed_size_bytes"] = compressed;
    json["snr_db"] = snr;
    json["centred_snr_db"] = keys_snr;
    json["worst_tensor"] = worst_tensor;
    return json;
  }

 private:
  void AddWorst(const Json& input, const Json& tensor) {
    if (tensor.is_null() ||
        (!worst_tensor.is_null() && !IsWorse(tensor, worst_tensor))) {
      return;
    }
    worst_tensor = {{"input", input},
                    {"name", tensor.at("name")},
                    {"snr_db", tensor.at("snr_db")},
                    {"centred_snr_db", tensor.at("centred_snr_db")}};
  }

  // Keys first, as in a report.
  static bool IsWorse(const Json& tensor, const Json& other) {
    const Json& keys = tensor.at("centred_snr_db");
    const Json& others = other.at("centred_snr_db");
    if (keys.is_null() != others.is_null()) return !keys.is_null();
    return keys.is_null()
               ? SnrOf(tensor.at("snr_db")) < SnrOf(other.at("snr_db"))
               : SnrOf(keys) < SnrOf(others);
  }

  static double Seconds(uint64_t bytes, const Json& speed) {
    return speed.is_null()
               ? 0
               : static_cast<double>(bytes) / 1e6 / speed.get<double>();
  }

  Json Speed(double seconds) const {
    if (seconds <= 0) return nullptr;
    return static_cast<double>(original) / 1e6 / seconds;
  }
};

// The last line of JSON, and what the last table is made of.
Json SummaryJson(const std::vector<Json>& comparisons, size_t files) {
  Json rows = SummaryRows(comparisons);
  Json smallest = SmallestWithinBounds(rows);
  return {{"files", files},
          {"failed", files - comparisons.size()},
          {"bounds", comparisons[0].at("bounds")},
          {"codecs", std::move(rows)},
          {"smallest_within_bounds", std::move(smallest)}};
}

std::string SummaryText(const Json& summary, size_t compared) {
  Json json = summary;
  for (Json& row : json["codecs"]) {
    if (!row.contains("compression_ratio")) {
      row["error"] = {{"message", "failed with every file"}};
    }
  }
  json["input"] = compared == 1 ? std::string("1 file")
                                : absl::StrCat("All ", compared, " files");
  return ComparisonTable(json);
}

}  // namespace

Json SummaryRows(absl::Span<const Json> comparisons) {
  std::vector<Total> totals;
  for (const Json& comparison : comparisons) {
    for (const Json& row : comparison.at("codecs")) {
      auto total =
          std::find_if(totals.begin(), totals.end(), [&row](const Total& each) {
            return each.codec == row.at("codec") &&
                   each.profile == row.at("profile");
          });
      if (total == totals.end()) {
        totals.push_back(
            Total{.codec = row.at("codec"), .profile = row.at("profile")});
        total = totals.end() - 1;
      }
      total->Add(comparison.at("input"), row);
    }
  }
  Json rows = Json::array();
  for (const Total& total : totals) rows.push_back(total.ToJson());
  return rows;
}

absl::StatusOr<int> RunComparisons(const Flags& flags) {
  const absl::StatusOr<TaskList> list = ListTasks(flags);
  if (!list.ok()) return list.status();
  PrintSkipped(flags, *list);
  LazyConnection service(flags);
  const absl::StatusOr<const ServiceConnection*> opened = service.Get();
  if (!opened.ok()) return opened.status();
  const bool table = PrintsTable(flags, stdout);
  std::vector<Json> comparisons;
  std::string errors;
  int worst = kExitOk;
  for (const FileTask& task : list->tasks) {
    const absl::StatusOr<Json> json = CompareCodecs(flags, task, **opened);
    std::string text;
    if (json.ok()) {
      comparisons.push_back(*json);
      if (HasError(*json)) worst = kExitError;
      text =
          table ? absl::StrCat(ComparisonTable(*json), "\n") : PrintLine(*json);
    } else {
      const absl::Status error = (*opened)->Explain(json.status());
      worst = kExitError;
      absl::StrAppend(&errors, ErrorLine(task, error));
      if (!table) {
        text = PrintLine({{"input", task.input}, {"error", ErrorJson(error)}});
      }
    }
    absl::Status status = PrintText(text, stdout);
    if (!status.ok()) return status;
  }
  if (!comparisons.empty()) {
    const Json summary = SummaryJson(comparisons, list->tasks.size());
    absl::Status status = PrintText(
        table ? SummaryText(summary, comparisons.size()) : PrintLine(summary),
        stdout);
    if (!status.ok()) return status;
  }
  absl::FPrintF(stderr, "%s", errors);
  const size_t files = list->tasks.size();
  if (files > 1 && !errors.empty()) {
    absl::FPrintF(stderr, "%d files: %d compared, %d failed\n", files,
                  comparisons.size(), files - comparisons.size());
  }
  return worst;
}

}  // namespace kvcompress::cli
