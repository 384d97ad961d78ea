// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/bench.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/bench_cache.h"
#include "client/cli/bench_flags.h"
#include "client/cli/bench_load.h"
#include "client/cli/bench_report.h"
#include "client/cli/codec_flags.h"
#include "client/cli/columns.h"
#include "client/cli/files.h"
#include "client/cli/memory_stream.h"
#include "client/cli/progress.h"
#include "client/cli/requests.h"
#include "client/cli/service_connection.h"
#include "kvcompress/client.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::string> ReadCache(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Input>> input =
      Input::Open(path, ProgressMode::kNever);
  if (!input.ok()) return input.status();
  std::string bytes;
  std::string buffer(1 << 20, '\0');
  while (true) {
    const absl::StatusOr<size_t> size = (*input)->Read(absl::MakeSpan(buffer));
    if (!size.ok()) return size.status();
    if (*size == 0) return bytes;
    if (bytes.size() + *size > kMaxBenchCache) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " has more than ", SizeText(kMaxBenchCache),
          ", and bench holds its file in memory: send a smaller one"));
    }
    bytes.append(buffer, 0, *size);
  }
}

// One for each call at a time, all of them made. Fills in what the server is.
absl::StatusOr<std::vector<ServiceConnection>> Connect(
    const Flags& flags, v1::GetServerInfoResponse* info) {
  std::vector<ServiceConnection> connections;
  const size_t most = *std::max_element(flags.bench.concurrency.begin(),
                                        flags.bench.concurrency.end());
  for (size_t i = 0; i < most; ++i) {
    absl::StatusOr<ServiceConnection> opened =
        ServiceConnection::Open(flags, /*own_connection=*/true);
    if (!opened.ok()) return opened.status();
    absl::StatusOr<v1::GetServerInfoResponse> reached =
        opened->client().GetServerInfo();
    if (!reached.ok()) return opened->Explain(reached.status());
    *info = *std::move(reached);
    connections.push_back(*std::move(opened));
  }
  return connections;
}

// A profile goes with two codecs; with others one that is not asked for must
// not step in.
std::string ProfileFor(absl::string_view codec, const std::string& named) {
  const absl::string_view name = NameOfCodec(codec);
  return named.empty() || name == "klt" || name == "auto" ? named : "none";
}

// One codec, and what its first calls gave.
class CodecBench {
 public:
  // Both outlive it.
  CodecBench(absl::string_view cache,
             absl::Span<const ServiceConnection> connections,
             v1::CompressOptions options)
      : cache_(cache),
        connections_(connections),
        options_(std::move(options)) {}

  absl::Status WarmUp() {
    MemorySource source(cache_);
    MemorySink sink;
    absl::StatusOr<v1::CompressionReport> report =
        connections_[0].client().Compress(options_, &source, &sink);
    if (!report.ok()) return connections_[0].Explain(report.status());
    report_ = *std::move(report);
    artefact_ = sink.TakeBytes();
    return Restore(0);
  }

  absl::Status Compress(size_t thread) const {
    MemorySource source(cache_);
    const ServiceConnection& connection = connections_[thread];
    return Check(connection, connection.client().Compress(
                                 options_, &source, /*artefact=*/nullptr));
  }

  absl::Status Restore(size_t thread) const {
    MemorySource source(artefact_);
    const ServiceConnection& connection = connections_[thread];
    return Check(connection, connection.client().Decompress(
                                 {}, &source, /*safetensors=*/nullptr));
  }

  // Of the warm-up.
  const v1::CompressionReport& report() const { return report_; }

 private:
  // The service is deterministic, so every call has the first one's digest.
  template <typename Report>
  absl::Status Check(const ServiceConnection& connection,
                     const absl::StatusOr<Report>& report) const {
    if (!report.ok()) return connection.Explain(report.status());
    if (report->payload_digest() == report_.payload_digest()) {
      return absl::OkStatus();
    }
    return absl::DataLossError(
        "the artefact of this call differs from that of the first one");
  }

  const absl::string_view cache_;
  const absl::Span<const ServiceConnection> connections_;
  const v1::CompressOptions options_;
  v1::CompressionReport report_;
  std::string artefact_;
};

// Appends the measurements of a codec.
void Measure(const Flags& flags, const CodecBench& bench,
             const std::string& codec, Progress* progress, Json* rows) {
  for (const size_t concurrency : flags.bench.concurrency) {
    for (const Direction direction :
         {Direction::kCompress, Direction::kRestore}) {
      progress->SetLabel(absl::StrCat(codec, ", ", DirectionName(direction),
                                      ", ", concurrency,
                                      concurrency == 1 ? " call" : " calls"));
      const LoadResult result =
          RunLoad(concurrency, flags.bench.duration, [&](size_t thread) {
            return direction == Direction::kCompress ? bench.Compress(thread)
                                                     : bench.Restore(thread);
          });
      progress->Advance(1);
      rows->push_back(MeasurementJson(codec, direction, concurrency,
                                      bench.report(), result));
    }
  }
}

}  // namespace

absl::StatusOr<Json> MeasureServer(const Flags& flags) {
  std::string cache;
  if (flags.input.empty()) {
    cache = GenerateCache(flags.bench.size);
  } else {
    absl::StatusOr<std::string> read = ReadCache(flags.input);
    if (!read.ok()) return read.status();
    cache = *std::move(read);
    absl::Status status = CheckBytesInFlight(flags, cache.size());
    if (!status.ok()) return status;
  }
  v1::GetServerInfoResponse info;
  const absl::StatusOr<std::vector<ServiceConnection>> connections =
      Connect(flags, &info);
  if (!connections.ok()) return connections.status();
  if (flags.verbose && !flags.quiet) LogServer(info);
  Progress progress(flags.progress,
                    flags.codecs.size() * flags.bench.concurrency.size() * 2,
                    "", ProgressUnit::kSteps);
  absl::Status first_error;
  bool any = false;
  Json rows = Json::array();
  for (const std::string& codec : flags.codecs) {
    v1::CompressOptions options = ToCompressOptions(flags);
    options.set_codec(codec);
    options.set_profile(ProfileFor(codec, connections->front().profile()));
    options.set_report_tensors(false);
    CodecBench bench(cache, *connections, std::move(options));
    const absl::Status warm = bench.WarmUp();
    if (warm.ok()) {
      any = true;
      Measure(flags, bench, codec, &progress, &rows);
    } else {
      first_error.Update(warm);
      rows.push_back(FailureJson(codec, warm));
    }
  }
  if (!any) return first_error;
  return Json{{"server", flags.server},
              {"server_version", info.version()},
              {"input", flags.input.empty() ? Json() : Json(flags.input)},
              {"request_size_bytes", cache.size()},
              {"seconds", absl::ToDoubleSeconds(flags.bench.duration)},
              {"measurements", std::move(rows)}};
}

}  // namespace kvcompress::cli
