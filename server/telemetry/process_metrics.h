// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The process's own standard metrics, read from /proc when they are collected:
// process_start_time_seconds, process_cpu_seconds_total,
// process_resident_memory_bytes, process_open_fds and process_max_fds. They can
// be had also when no file descriptor is left.
//
// Thread safe.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_PROCESS_METRICS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_PROCESS_METRICS_H_

#include <dirent.h>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <mutex>
#include <vector>

#include "file_descriptor.h"

namespace kvcompress {

class ProcessMetrics final : public prometheus::Collectable {
 public:
  // Takes now as the start of the process: make it early.
  ProcessMetrics();

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  double ResidentBytes() const;
  double OpenFiles() const;

  const double start_seconds_;  // since the Unix epoch
  const FileDescriptor statm_;  // /proc/self/statm
  mutable std::mutex mutex_;    // guards the position in files_
  const std::unique_ptr<DIR, int (*)(DIR*)> files_;  // /proc/self/fd
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_PROCESS_METRICS_H_
