// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

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

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total_pages = 0;
  double resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  double count = -1;  // one of them is this very directory
  for (; !error && files != std::filesystem::directory_iterator();
       files.increment(error)) {
    ++count;
  }
  return error ? 0 : count;
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
    : start_seconds_(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())) {}

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
          Single("process_max_fds", "Most file descriptors that may be open.",
                 MetricType::Gauge, MaxFiles())};
}

}  // namespace kvcompress
