// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/bench_load.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "absl/time/clock.h"

namespace kvcompress::cli {
namespace {

constexpr absl::Duration kPauseAfterFailure = absl::Milliseconds(50);

absl::Duration ProcessorTime() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) +
         absl::DurationFromTimeval(usage.ru_stime);
}

LoadResult RunThread(size_t thread, absl::Time end,
                     absl::FunctionRef<absl::Status(size_t)> call) {
  LoadResult result;
  absl::Time now = absl::Now();
  do {
    const absl::Time begun = now;
    const absl::Status status = call(thread);
    now = absl::Now();
    if (status.ok()) {
      result.latencies.push_back(now - begun);
      continue;
    }
    ++result.failures[absl::StatusCodeToString(status.code())];
    result.first_error.Update(status);
    absl::SleepFor(
        std::clamp(end - now, absl::ZeroDuration(), kPauseAfterFailure));
    now = absl::Now();
  } while (now < end);
  return result;
}

}  // namespace

uint64_t LoadResult::failed_calls() const {
  uint64_t sum = 0;
  for (const auto& [code, count] : failures) sum += count;
  return sum;
}

LoadResult RunLoad(size_t threads, absl::Duration duration,
                   absl::FunctionRef<absl::Status(size_t)> call) {
  const absl::Duration cpu = ProcessorTime();
  const absl::Time begin = absl::Now();
  std::vector<LoadResult> results(threads);
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i) {
    running.emplace_back(
        [&, i] { results[i] = RunThread(i, begin + duration, call); });
  }
  for (std::thread& thread : running) thread.join();
  LoadResult all;
  all.elapsed = absl::Now() - begin;
  all.cpu = ProcessorTime() - cpu;
  for (const LoadResult& result : results) {
    all.latencies.insert(all.latencies.end(), result.latencies.begin(),
                         result.latencies.end());
    for (const auto& [code, count] : result.failures) {
      all.failures[code] += count;
    }
    all.first_error.Update(result.first_error);
  }
  std::sort(all.latencies.begin(), all.latencies.end());
  return all;
}

std::optional<absl::Duration> Percentile(
    const std::vector<absl::Duration>& sorted, int percent) {
  if (sorted.empty()) return std::nullopt;
  const size_t rank = (sorted.size() * static_cast<size_t>(percent) + 99) / 100;
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace kvcompress::cli
