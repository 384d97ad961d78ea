// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/bench_flags.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "byte_size.h"
#include "client/cli/bench_cache.h"
#include "client/cli/codec_flags.h"
#include "client/cli/columns.h"
#include "client/cli/profile_flags.h"

namespace kvcompress::cli {
namespace {

constexpr double kMinSeconds = 0.1;
constexpr double kMaxSeconds = 600;

absl::Status SetConcurrency(absl::string_view text, BenchFlags* bench) {
  bench->concurrency.clear();
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    size_t calls = 0;
    if (!absl::SimpleAtoi(part, &calls) || calls < 1 ||
        calls > kMaxConcurrency) {
      return InvalidValue(text, "concurrency",
                          absl::StrCat("must be numbers from 1 to ",
                                       kMaxConcurrency, ", such as 1,2,4"));
    }
    bench->concurrency.push_back(calls);
  }
  return absl::OkStatus();
}

absl::Status SetSize(absl::string_view text, BenchFlags* bench) {
  const std::optional<uint64_t> size = ParseByteSize(text);
  if (!size || *size < kMinGeneratedCache || *size > kMaxBenchCache) {
    return InvalidValue(
        text, "size",
        absl::StrCat("must be a number of bytes from ", kMinGeneratedCache,
                     " to ", kMaxBenchCache, " (units: KiB, MiB, GiB)"));
  }
  bench->size = *size;
  return absl::OkStatus();
}

absl::Status SetSeconds(absl::string_view text, BenchFlags* bench) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds >= kMinSeconds) ||
      seconds > kMaxSeconds) {
    return InvalidValue(text, "seconds",
                        absl::StrCat("must be a number from ", kMinSeconds,
                                     " to ", kMaxSeconds));
  }
  bench->duration = absl::Seconds(seconds);
  return absl::OkStatus();
}

}  // namespace

absl::Status SetBenchFile(const RawFlags& raw, Flags* flags) {
  if (raw.output) {
    return absl::InvalidArgumentError(
        "bench writes nothing: leave out -output");
  }
  if (raw.files.size() + (raw.input.empty() ? 0 : 1) > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("bench sends one file: leave out ", raw.files.back()));
  }
  flags->input = raw.files.empty() ? raw.input : raw.files[0];
  return absl::OkStatus();
}

absl::Status SetBench(const RawFlags& raw, Flags* flags) {
  if (flags->mode != Mode::kBench) {
    if (!raw.concurrency && !raw.size && !raw.seconds) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "-concurrency, -size and -seconds need the command bench");
  }
  if (raw.thresholds || raw.key_thresholds || raw.value_thresholds ||
      raw.min_snr_db) {
    return absl::InvalidArgumentError(
        "bench publishes nothing: leave out -thresholds, -key-thresholds, "
        "-value-thresholds and -min-snr-db");
  }
  if (raw.size && !flags->input.empty()) {
    return absl::InvalidArgumentError(
        "-size is that of a generated cache: leave it out, or leave out the "
        "file");
  }
  if (flags->codecs.empty()) {
    flags->codecs.emplace_back(kDefaultCodec);
    flags->effort = v1::EFFORT_FAST;
  }
  absl::Status status;
  if (raw.concurrency) status = SetConcurrency(*raw.concurrency, &flags->bench);
  if (raw.size) status.Update(SetSize(*raw.size, &flags->bench));
  if (raw.seconds) status.Update(SetSeconds(*raw.seconds, &flags->bench));
  if (!status.ok() || !flags->input.empty()) return status;
  return CheckBytesInFlight(*flags, flags->bench.size);
}

absl::Status CheckBytesInFlight(const Flags& flags, uint64_t cache_size) {
  const size_t most = *std::max_element(flags.bench.concurrency.begin(),
                                        flags.bench.concurrency.end());
  if (cache_size <= kMaxBytesInFlight / most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      most, " calls at a time of ", SizeText(cache_size), " each are ",
      SizeText(most * cache_size), ", above the limit of ",
      SizeText(kMaxBytesInFlight), ": lower -concurrency, or ",
      flags.input.empty() ? "-size" : "send a smaller file"));
}

}  // namespace kvcompress::cli
