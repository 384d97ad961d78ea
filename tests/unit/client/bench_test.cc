// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The command bench without a server: its flags, its cache, its threads and its
// table.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cli/bench_cache.h"
#include "client/cli/bench_flags.h"
#include "client/cli/bench_load.h"
#include "client/cli/bench_report.h"
#include "client/cli/flags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/tensor.h"

namespace kvcompress::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

absl::StatusOr<Flags> BenchFlagsOf(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "-server", "host:1"});
  return ParseFlags(arguments);
}

std::string BenchError(const std::vector<std::string>& arguments) {
  return std::string(BenchFlagsOf(arguments).status().message());
}

TEST(BenchTest, DefaultsAreThoseOfCompression) {
  const absl::StatusOr<Flags> flags = BenchFlagsOf({});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->mode, Mode::kBench);
  EXPECT_THAT(flags->codecs, ElementsAre("auto"));
  EXPECT_EQ(flags->effort, v1::EFFORT_FAST);
  EXPECT_THAT(flags->bench.concurrency, ElementsAre(1));
  EXPECT_EQ(flags->bench.size, 16 << 20);
  EXPECT_EQ(flags->bench.duration, absl::Seconds(5));
}

TEST(BenchTest, Lists) {
  const absl::StatusOr<Flags> flags =
      BenchFlagsOf({"-codec", "int4,klt:ultra", "-concurrency", "1,2,256",
                    "-size", "1GiB", "-seconds", "0.5", "-json"});
  EXPECT_THAT(flags.status().message(),
              HasSubstr("256 calls at a time of 1.1 GB each are 274.9 GB, "
                        "above the limit of 8.6 GB: lower -concurrency, or "
                        "-size"));
  const absl::StatusOr<Flags> fewer =
      BenchFlagsOf({"-codec", "int4,klt:ultra", "-concurrency", "1,2,8",
                    "-size", "1GiB", "-seconds", "0.5", "-json"});
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_THAT(fewer->codecs, ElementsAre("int4", "klt:ultra"));
  EXPECT_EQ(fewer->effort, v1::EFFORT_UNSPECIFIED);
  EXPECT_THAT(fewer->bench.concurrency, ElementsAre(1, 2, 8));
  EXPECT_EQ(fewer->bench.size, 1 << 30);
  EXPECT_EQ(fewer->bench.duration, absl::Milliseconds(500));
  EXPECT_EQ(fewer->format, Format::kJson);
}

TEST(BenchTest, FlagsThatDoNotGoTogether) {
  for (const char* const list : {"", "0", "1,", "1,x", "257", "-1"}) {
    EXPECT_THAT(BenchError({"-concurrency", list}),
                HasSubstr("must be numbers from 1 to 256, such as 1,2,4"));
  }
  for (const char* const size : {"", "1", "16MB", "2GiB", "-1"}) {
    EXPECT_THAT(BenchError({"-size", size}),
                HasSubstr("from 65536 to 1073741824 (units: KiB, MiB, GiB)"));
  }
  for (const char* const seconds : {"", "0", "601", "nan", "5s"}) {
    EXPECT_THAT(BenchError({"-seconds", seconds}),
                HasSubstr("must be a number from 0.1 to 600"));
  }
  EXPECT_THAT(BenchError({"a", "b"}), HasSubstr("sends one file: leave out b"));
  EXPECT_THAT(BenchError({"a", "-size=1MiB"}), HasSubstr("generated cache"));
  EXPECT_THAT(BenchError({"-o", "a"}), HasSubstr("writes nothing"));
  EXPECT_THAT(BenchError({"-min-snr-db", "1"}), HasSubstr("publishes nothing"));
  EXPECT_THAT(BenchError({"-preset", "high"}), HasSubstr("whole codec str"));
  EXPECT_THAT(BenchError({"-json", "-format", "table"}), HasSubstr("combined"));
  EXPECT_THAT(ParseFlags({"a", "-seconds", "1"}).status().message(),
              HasSubstr("need the command bench"));
}

TEST(BenchTest, GeneratedCachesAreOfTheSizeThatIsAskedFor) {
  for (const uint64_t size : {uint64_t{64} << 10, uint64_t{1'000'000},
                              uint64_t{5} << 20, uint64_t{80} << 20}) {
    const std::string file = GenerateCache(size);
    SafetensorsHeaderReader reader(kMaxSafetensorsHeader);
    absl::string_view bytes = file;
    ASSERT_TRUE(reader.Append(&bytes).ok());
    const absl::StatusOr<SafetensorsHeader> header =
        ParseSafetensorsHeader(reader.json());
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(reader.raw().size() + header->data_size, file.size());
    EXPECT_LE(header->data_size, size);
    EXPECT_GT(header->data_size + (128 << 10), size);
    size_t keys = 0;
    for (const SafetensorsEntry& entry : header->tensors) {
      TensorSpec spec = entry.spec;
      InferRole(&spec);
      EXPECT_NE(spec.role, TensorRole::kNone) << spec.name;
      EXPECT_TRUE(spec.layer.has_value()) << spec.name;
      keys += spec.role == TensorRole::kKey ? 1 : 0;
    }
    EXPECT_EQ(2 * keys, header->tensors.size());
  }
  EXPECT_EQ(GenerateCache(1 << 20), GenerateCache(1 << 20));
}

TEST(BenchTest, EveryThreadCallsAtLeastOnce) {
  std::vector<std::atomic<int>> calls(3);
  const LoadResult result =
      RunLoad(calls.size(), absl::ZeroDuration(), [&](size_t thread) {
        ++calls[thread];
        return absl::OkStatus();
      });
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
  EXPECT_EQ(result.latencies.size(), 3);
  EXPECT_TRUE(std::is_sorted(result.latencies.begin(), result.latencies.end()));
  EXPECT_EQ(result.failed_calls(), 0);
}

TEST(BenchTest, CallsThatFailAreCountedByTheirCodes) {
  const LoadResult result =
      RunLoad(3, absl::ZeroDuration(), [&](size_t thread) -> absl::Status {
        if (thread == 0) return absl::OkStatus();
        return absl::ResourceExhaustedError("full");
      });
  EXPECT_EQ(result.latencies.size(), 1);
  EXPECT_EQ(result.failed_calls(), 2);
  EXPECT_THAT(result.failures, ElementsAre(Pair("RESOURCE_EXHAUSTED", 2)));
  EXPECT_EQ(result.first_error.message(), "full");
}

TEST(BenchTest, PercentilesAreOfTheNearestRank) {
  EXPECT_EQ(Percentile({}, 50), std::nullopt);
  std::vector<absl::Duration> latencies;
  for (int i = 1; i <= 100; ++i) latencies.push_back(absl::Milliseconds(i));
  EXPECT_EQ(Percentile(latencies, 50), absl::Milliseconds(50));
  EXPECT_EQ(Percentile(latencies, 99), absl::Milliseconds(99));
  latencies.resize(3);
  EXPECT_EQ(Percentile(latencies, 50), absl::Milliseconds(2));
  EXPECT_EQ(Percentile(latencies, 99), absl::Milliseconds(3));
}

TEST(BenchTest, TheTableHasTheNumbersOfTheJson) {
  v1::CompressionReport report;
  report.set_codec("int4:64");
  report.set_original_size_bytes(10'000'000);
  report.set_compression_ratio(3.5);
  LoadResult result{.latencies = {absl::Milliseconds(1), absl::Milliseconds(3)},
                    .failures = {{"UNAVAILABLE", 4}},
                    .first_error = absl::UnavailableError("away"),
                    .elapsed = absl::Milliseconds(500),
                    .cpu = absl::Milliseconds(30)};
  nlohmann::ordered_json json = {
      {"server", "host:1"},
      {"server_version", "1.2"},
      {"input", nullptr},
      {"request_size_bytes", 10'000'000},
      {"measurements",
       {MeasurementJson("int4", Direction::kRestore, 2, report, result),
        FailureJson("no", absl::InvalidArgumentError("unknown codec"))}}};
  const nlohmann::ordered_json& row = json["measurements"][0];
  EXPECT_EQ(row["calls"], 2);
  EXPECT_EQ(row["calls_per_second"], 4);
  EXPECT_EQ(row["mb_per_second"], 40);
  EXPECT_EQ(row["p50_ms"], 1);
  EXPECT_EQ(row["p99_ms"], 3);
  EXPECT_EQ(row["failed_calls"], 4);
  EXPECT_EQ(row["client_cpu_seconds_per_gb"], 1.5);
  EXPECT_TRUE(cli::HasFailure(json));
  EXPECT_EQ(
      BenchTable(json),
      "host:1, version 1.2; a generated cache of 10.0 MB, whose ratios are not "
      "those of a model\n\n"
      "codec  direction  concurrency  calls  calls/s  MB/s  p50 ms  p99 ms  "
      "ratio  client CPU s/GB  errors\n"
      "int4   restore              2      2      4.0    40     1.0     3.0  "
      "3.50x             1.50  4 UNAVAILABLE\n"
      "no     failed\n\n"
      "int4, restore, concurrency 2: away\n"
      "no: unknown codec\n"
      "MB and GB are of uncompressed tensors, in both directions.\n");
  result.latencies.clear();
  const nlohmann::ordered_json none =
      MeasurementJson("int4", Direction::kCompress, 2, report, result);
  for (const char* const field :
       {"p50_ms", "p99_ms", "client_cpu_seconds_per_gb"}) {
    EXPECT_TRUE(none.at(field).is_null()) << field;
  }
}

}  // namespace
}  // namespace kvcompress::cli
