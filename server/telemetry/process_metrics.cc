// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/process_metrics.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kvcompress {
namespace {

using prometheus::MetricType;

prometheus::MetricFamily Single(const char* name, const char* help,
                                MetricType type, double value) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  family.metric.emplace_back();
  family.metric[0].gauge.value = value;
  family.metric[0].counter.value = value;
  return family;
}

double MaxFiles() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                               absl::DurationFromTimeval(usage.ru_stime));
}

}  // namespace

ProcessMetrics::ProcessMetrics()
    : start_seconds_(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())),
      statm_(open("/proc/self/statm", O_RDONLY | O_CLOEXEC)),
      files_(opendir("/proc/self/fd"), closedir) {}

double ProcessMetrics::ResidentBytes() const {
  char text[128] = "";
  double total_pages = 0;
  double resident_pages = 0;
  if (pread(statm_.get(), text, sizeof(text) - 1, 0) <= 0 ||
      std::sscanf(text, "%lf %lf", &total_pages, &resident_pages) != 2) {
    return 0;
  }
  return resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double ProcessMetrics::OpenFiles() const {
  if (files_ == nullptr) return 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  rewinddir(files_.get());
  double count = 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody else reads this one
  while (const dirent* file = readdir(files_.get())) {
    if (file->d_name[0] != '.') ++count;
  }
  return count;
}

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  return {Single("process_start_time_seconds",
                 "Start of the process, in seconds since the Unix epoch.",
                 MetricType::Gauge, start_seconds_),
          Single("process_cpu_seconds_total",
                 "Processor time used, user and system, in seconds.",
                 MetricType::Counter, CpuSeconds()),
          Single("process_resident_memory_bytes", "Resident memory, in bytes.",
                 MetricType::Gauge, ResidentBytes()),
          Single("process_open_fds", "Open file descriptors.",
                 MetricType::Gauge, OpenFiles()),
          Single("process_max_fds", "Limit on open file descriptors.",
                 MetricType::Gauge, MaxFiles())};
}

}  // namespace kvcompress
