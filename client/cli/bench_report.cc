// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/bench_report.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/columns.h"
#include "client/cli/report_json.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;
using Side = Columns::Side;

Json Milliseconds(std::optional<absl::Duration> duration) {
  return duration ? Json(absl::ToDoubleMilliseconds(*duration)) : Json();
}

std::string ShownText(const Json& value) {
  return Printable(value.get<std::string>());
}

// "12.3", or "-" where it is not known.
std::string Number(const Json& value, int digits) {
  return value.is_null() ? "-"
                         : absl::StrFormat("%.*f", digits, value.get<double>());
}

// "3 RESOURCE_EXHAUSTED, 1 UNAVAILABLE", or "0".
std::string ErrorsText(const Json& errors) {
  std::vector<std::string> parts;
  for (const auto& [code, count] : errors.items()) {
    parts.push_back(absl::StrCat(count.get<uint64_t>(), " ", Printable(code)));
  }
  return parts.empty() ? "0" : absl::StrJoin(parts, ", ");
}

std::string ErrorOf(const Json& row) {
  const Json& error = row.at("error");
  if (error.is_null()) return "";
  std::string where = ShownText(row.at("codec"));
  if (row.contains("direction")) {
    absl::StrAppend(&where, ", ", ShownText(row.at("direction")),
                    ", concurrency ", row.at("concurrency").get<uint64_t>());
  }
  return absl::StrCat(where, ": ", ShownText(error.at("message")), "\n");
}

}  // namespace

absl::string_view DirectionName(Direction direction) {
  return direction == Direction::kCompress ? "compress" : "restore";
}

Json MeasurementJson(const std::string& codec, Direction direction,
                     size_t concurrency, const v1::CompressionReport& report,
                     const LoadResult& result) {
  const size_t calls = result.latencies.size();
  const double seconds = absl::ToDoubleSeconds(result.elapsed);
  const double bytes = static_cast<double>(calls) *
                       static_cast<double>(report.original_size_bytes());
  const double calls_per_second = static_cast<double>(calls) / seconds;
  return Json{
      {"codec", codec},
      {"resolved_codec", report.codec()},
      {"direction", DirectionName(direction)},
      {"concurrency", concurrency},
      {"calls", calls},
      {"seconds", seconds},
      {"calls_per_second", calls_per_second},
      {"mb_per_second", bytes / 1e6 / seconds},
      {"p50_ms", Milliseconds(Percentile(result.latencies, 50))},
      {"p99_ms", Milliseconds(Percentile(result.latencies, 99))},
      {"compression_ratio", report.compression_ratio()},
      {"failed_calls", result.failed_calls()},
      {"errors", result.failures},
      {"client_cpu_seconds_per_gb",
       bytes > 0 ? Json(absl::ToDoubleSeconds(result.cpu) / (bytes / 1e9))
                 : Json()},
      {"error",
       result.first_error.ok() ? Json() : ErrorJson(result.first_error)}};
}

Json FailureJson(const std::string& codec, const absl::Status& error) {
  return Json{{"codec", codec}, {"error", ErrorJson(error)}};
}

bool HasFailure(const Json& json) {
  const Json& rows = json.at("measurements");
  return std::any_of(rows.begin(), rows.end(), [](const Json& row) {
    return !row.at("error").is_null();
  });
}

std::string BenchTable(const Json& json) {
  Columns columns({Side::kLeft, Side::kLeft, Side::kRight, Side::kRight,
                   Side::kRight, Side::kRight, Side::kRight, Side::kRight,
                   Side::kRight, Side::kRight, Side::kLeft});
  columns.AddRow({"codec", "direction", "concurrency", "calls", "calls/s",
                  "MB/s", "p50 ms", "p99 ms", "ratio", "client CPU s/GB",
                  "errors"});
  std::string errors;
  for (const Json& row : json.at("measurements")) {
    absl::StrAppend(&errors, ErrorOf(row));
    if (!row.contains("direction")) {
      columns.AddRow({ShownText(row.at("codec")), "failed"});
      continue;
    }
    columns.AddRow({ShownText(row.at("codec")), ShownText(row.at("direction")),
                    row.at("concurrency").dump(), row.at("calls").dump(),
                    Number(row.at("calls_per_second"), 1),
                    Number(row.at("mb_per_second"), 0),
                    Number(row.at("p50_ms"), 1), Number(row.at("p99_ms"), 1),
                    RatioText(row.at("compression_ratio").get<double>()),
                    Number(row.at("client_cpu_seconds_per_gb"), 2),
                    ErrorsText(row.at("errors"))});
  }
  const Json& input = json.at("input");
  const std::string size =
      SizeText(json.at("request_size_bytes").get<uint64_t>());
  const std::string cache =
      input.is_null() ? absl::StrCat("a generated cache of ", size,
                                     ", whose ratios are not those of a model")
                      : absl::StrCat(ShownText(input), ", ", size);
  return absl::StrCat(ShownText(json.at("server")), ", version ",
                      ShownText(json.at("server_version")), "; ", cache, "\n\n",
                      columns.ToString(), "\n", errors,
                      "MB and GB are of uncompressed tensors, in both "
                      "directions.\n");
}

}  // namespace kvcompress::cli
