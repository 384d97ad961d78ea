// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/compare.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cli/codec_flags.h"
#include "client/cli/files.h"
#include "client/cli/gate.h"
#include "client/cli/memory_stream.h"
#include "client/cli/progress.h"
#include "client/cli/report_json.h"
#include "client/cli/requests.h"
#include "kvcompress/client.h"
#include "kvcompress/codec.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

// No metric of a report ranks it as models do: see
// docs/codecs/int4-hadamard.md.
constexpr absl::string_view kNotCompared = "int4-hadamard";

// Runs of one codec are repeated until they have taken so long.
constexpr absl::Duration kEnoughTime = absl::Milliseconds(250);

struct Candidate {
  std::string codec;
  std::string profile;  // CompressOptions.profile
  std::string label;    // of the profile; empty for none
};

// Every codec of the service, in each of its presets.
std::vector<std::string> AllCodecs(const v1::GetServerInfoResponse& info) {
  std::vector<std::string> codecs;
  for (const v1::CodecInfo& codec : info.codecs()) {
    if (codec.name() == kNotCompared) continue;
    if (codec.presets().empty()) codecs.push_back(codec.name());
    for (const std::string& preset : codec.presets()) {
      codecs.push_back(absl::StrCat(codec.name(), ":", preset));
    }
  }
  return codecs;
}

// The profile that `name` names, as the service knows it; null for none.
const v1::ProfileInfo* FindProfile(const v1::GetServerInfoResponse& info,
                                   const std::string& name) {
  for (const v1::ProfileInfo& profile : info.profiles()) {
    if (name == profile.name() || name == profile.digest() ||
        name == profile.label()) {
      return &profile;
    }
  }
  return nullptr;
}

absl::StatusOr<std::vector<Candidate>> Candidates(
    const Flags& flags, const ServiceConnection& service) {
  const absl::StatusOr<v1::GetServerInfoResponse> info =
      service.client().GetServerInfo();
  if (!info.ok()) return info.status();
  const std::string& named = service.profile();
  const v1::ProfileInfo* const profile =
      named.empty() ? nullptr : FindProfile(*info, named);
  const std::string label = profile == nullptr ? named : profile->label();
  // With a profile at hand, one that is not asked for must not step in.
  const std::string without = named.empty() ? "" : "none";
  std::vector<Candidate> candidates;
  for (const std::string& codec : flags.codecs) {
    const bool with = !named.empty() && NameOfCodec(codec) == "klt";
    candidates.push_back({codec, with ? named : without, with ? label : ""});
  }
  if (!flags.codecs.empty()) return candidates;
  for (std::string& codec : AllCodecs(*info)) {
    candidates.push_back({std::move(codec), without, ""});
  }
  if (profile == nullptr && !named.empty()) {
    candidates.push_back({"klt", named, label});
  }
  if (profile != nullptr) {
    for (const std::string& preset : profile->presets()) {
      candidates.push_back({absl::StrCat("klt:", preset), named, label});
    }
  }
  return candidates;
}

struct Measurement {
  v1::CompressionReport report;
  absl::Duration compression = absl::InfiniteDuration();
  absl::Duration restoration = absl::InfiniteDuration();
};

absl::StatusOr<Measurement> MeasureOnce(const std::string& path,
                                        const v1::CompressOptions& options,
                                        const Client& client,
                                        Progress* progress) {
  absl::StatusOr<std::unique_ptr<Input>> input =
      Input::Open(path, ProgressMode::kNever);
  if (!input.ok()) return input.status();
  WatchedSource source(input->get(), progress);
  MemorySink artefact;
  Measurement measured;
  absl::Time begun = absl::Now();
  absl::StatusOr<v1::CompressionReport> report =
      client.Compress(options, &source, &artefact);
  if (!report.ok()) return report.status();
  measured.compression = absl::Now() - begun;
  measured.report = *std::move(report);
  MemorySource compressed(artefact.bytes());
  begun = absl::Now();
  const absl::StatusOr<v1::DecompressionReport> restored =
      client.Decompress({}, &compressed, /*safetensors=*/nullptr);
  if (!restored.ok()) return restored.status();
  measured.restoration = absl::Now() - begun;
  return measured;
}

// The report of the first run, and the shortest times.
absl::StatusOr<Measurement> MeasureCodec(const std::string& path,
                                         const v1::CompressOptions& options,
                                         const Client& client,
                                         Progress* progress) {
  absl::StatusOr<Measurement> best =
      MeasureOnce(path, options, client, progress);
  if (!best.ok()) return best;
  absl::Duration spent = best->compression + best->restoration;
  Progress unseen(ProgressMode::kNever, std::nullopt);
  for (int run = 1; run < kMaxRuns && spent < kEnoughTime; ++run) {
    absl::StatusOr<Measurement> next =
        MeasureOnce(path, options, client, &unseen);
    if (!next.ok()) return next;
    spent += next->compression + next->restoration;
    best->compression = std::min(best->compression, next->compression);
    best->restoration = std::min(best->restoration, next->restoration);
  }
  return best;
}

bool HoldsBounds(const v1::TensorReport& tensor, bool gate) {
  if (!gate) return tensor.verdict().passed();
  return std::none_of(
      tensor.verdict().missed().begin(), tensor.verdict().missed().end(),
      [](const v1::MissedBound& missed) { return missed.requested(); });
}

Json MegabytesPerSecond(uint64_t bytes, absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  if (seconds <= 0) return nullptr;
  return static_cast<double>(bytes) / 1e6 / seconds;
}

Json RowJson(const Candidate& candidate, const Measurement& measured,
             bool gate) {
  const v1::CompressionReport& report = measured.report;
  const Json all = CompressionJson(report, /*verbose=*/false);
  const auto holding =
      std::count_if(report.tensors().begin(), report.tensors().end(),
                    [&](const v1::TensorReport& tensor) {
                      return HoldsBounds(tensor, gate);
                    });
  const uint64_t bytes = report.original_size_bytes();
  Json row = {
      {"codec", candidate.codec},
      {"profile", candidate.label.empty() ? Json() : Json(candidate.label)},
      {"resolved_codec", report.codec()},
      {"tensors_within_bounds", holding},
      {"compress_mb_per_second",
       MegabytesPerSecond(bytes, measured.compression)},
      {"restore_mb_per_second",
       MegabytesPerSecond(bytes, measured.restoration)}};
  for (const char* const field :
       {"compression_ratio", "bits_per_value", "original_size_bytes",
        "compressed_size_bytes", "snr_db", "centred_snr_db", "rmse",
        "max_error", "cosine_similarity", "quality_level", "tensor_count",
        "worst_tensor", "warnings"}) {
    row[field] = all.at(field);
  }
  return row;
}

// Reads the file once, so that the first codec does not wait for the disk. Its
// size.
absl::StatusOr<uint64_t> ReadThrough(const std::string& path) {
  struct stat file;
  const bool exists = path != "-" && stat(path.c_str(), &file) == 0;
  if (path == "-" ||
      (exists && !S_ISREG(file.st_mode) && !S_ISDIR(file.st_mode))) {
    return absl::InvalidArgumentError(
        "-compare reads its input once for each codec, so it needs a file: "
        "write the stream to a file first");
  }
  absl::StatusOr<std::unique_ptr<Input>> input =
      Input::Open(path, ProgressMode::kNever);
  if (!input.ok()) return input.status();
  std::string buffer(1 << 20, '\0');
  uint64_t bytes = 0;
  while (true) {
    const absl::StatusOr<size_t> size = (*input)->Read(absl::MakeSpan(buffer));
    if (!size.ok()) return size.status();
    if (*size == 0) return bytes;
    bytes += *size;
  }
}

}  // namespace

bool HasError(const Json& comparison) {
  const Json& rows = comparison.at("codecs");
  return std::any_of(rows.begin(), rows.end(),
                     [](const Json& row) { return row.contains("error"); });
}

Json SmallestWithinBounds(const Json& rows) {
  Json best;
  for (const Json& row : rows) {
    if (row.contains("error") || row.value("failed", 0) > 0 ||
        row.at("tensors_within_bounds") != row.at("tensor_count")) {
      continue;
    }
    if (best.is_null() ||
        row.at("compressed_size_bytes") < best.at("compressed_size_bytes")) {
      best = {{"codec", row.at("codec")},
              {"profile", row.at("profile")},
              {"compression_ratio", row.at("compression_ratio")},
              {"compressed_size_bytes", row.at("compressed_size_bytes")}};
    }
  }
  return best;
}

absl::StatusOr<Json> CompareCodecs(const Flags& flags, const FileTask& task,
                                   const ServiceConnection& service) {
  const absl::StatusOr<uint64_t> size = ReadThrough(task.input);
  if (!size.ok()) return size.status();
  const absl::StatusOr<std::vector<Candidate>> candidates =
      Candidates(flags, service);
  if (!candidates.ok()) return candidates.status();
  v1::CompressOptions options = ToCompressOptions(flags);
  options.set_report_tensors(true);
  const bool gate = HasGate(options);
  absl::Status first_error;
  bool any = false;
  Json rows = Json::array();
  Progress progress(flags.progress, *size * candidates->size());
  for (const Candidate& candidate : *candidates) {
    options.set_codec(candidate.codec);
    options.set_profile(candidate.profile);
    progress.SetLabel(absl::StrCat(task.label, task.label.empty() ? "" : " ",
                                   candidate.codec));
    const absl::StatusOr<Measurement> measured =
        MeasureCodec(task.input, options, service.client(), &progress);
    if (measured.ok()) {
      any = true;
      rows.push_back(RowJson(candidate, *measured, gate));
      continue;
    }
    first_error.Update(measured.status());
    Json row = {
        {"codec", candidate.codec},
        {"profile", candidate.label.empty() ? Json() : Json(candidate.label)}};
    row["error"] = ErrorJson(measured.status());
    rows.push_back(std::move(row));
  }
  if (!any) return first_error;
  Json smallest = SmallestWithinBounds(rows);
  return Json{{"input", task.input},
              {"bounds", gate ? "requested" : "default"},
              {"codecs", std::move(rows)},
              {"smallest_within_bounds", std::move(smallest)}};
}

}  // namespace kvcompress::cli
