// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "control_groups.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace kvcompress {
namespace {

// The numbers that a file begins with; none where it has a word, such as "max".
std::vector<int64_t> ReadNumbers(const std::string& path) {
  std::ifstream file(path);
  std::vector<int64_t> numbers;
  int64_t number = 0;
  for (std::string word; file >> word && absl::SimpleAtoi(word, &number);) {
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

void ForEachControlGroup(
    const std::string& root, absl::string_view controller,
    absl::FunctionRef<void(const std::string& directory, int version)> visit) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // ID:CONTROLLERS:PATH; the path may be that of another namespace, and the
    // mount is then already the group itself.
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    std::string mount = root + "/sys/fs/cgroup";
    const int version = parts[1].empty() ? 2 : 1;
    if (version == 1) {
      const std::vector<std::string> names = absl::StrSplit(parts[1], ',');
      if (std::find(names.begin(), names.end(), controller) == names.end()) {
        continue;
      }
      absl::StrAppend(&mount, "/", controller);
    }
    absl::string_view group = parts[2];
    if (group == "/") group = "";
    while (true) {
      visit(absl::StrCat(mount, group), version);
      if (group.empty()) break;
      group = group.substr(0, group.rfind('/'));
    }
  }
}

std::optional<double> ProcessorQuota(const std::string& root) {
  std::optional<double> least;
  ForEachControlGroup(root, "cpu", [&](const std::string& group, int version) {
    std::vector<int64_t> times;  // quota and period, in microseconds
    if (version == 2) {
      times = ReadNumbers(group + "/cpu.max");
    } else {
      for (const char* file : {"/cpu.cfs_quota_us", "/cpu.cfs_period_us"}) {
        const std::vector<int64_t> time = ReadNumbers(group + file);
        times.insert(times.end(), time.begin(), time.end());
      }
    }
    if (times.size() != 2 || times[0] <= 0 || times[1] <= 0) return;
    const double quota =
        static_cast<double>(times[0]) / static_cast<double>(times[1]);
    least = std::min(least.value_or(quota), quota);
  });
  return least;
}

}  // namespace kvcompress
