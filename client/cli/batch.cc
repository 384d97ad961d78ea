// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/batch.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/cli/advice.h"
#include "client/cli/commands.h"
#include "client/cli/printing.h"
#include "client/cli/report_json.h"
#include "client/cli/service_connection.h"
#include "client/cli/text_tables.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kCacheSuffix = ".safetensors";
constexpr absl::string_view kArtefactSuffix = ".kvc.safetensors";

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool Writes(Mode mode) {
  return mode == Mode::kCompress || mode == Mode::kDecompress;
}

// Whether a file of this name, found in a folder, is one for `mode`.
bool Takes(Mode mode, absl::string_view name) {
  const bool artefact = absl::EndsWith(name, kArtefactSuffix);
  if (mode == Mode::kDecompress || mode == Mode::kVerify) return artefact;
  return absl::EndsWith(name, kCacheSuffix) &&
         (mode == Mode::kInfo || !artefact);
}

// The name of the output for an input of this name.
std::string OutputName(Mode mode, absl::string_view name) {
  return mode == Mode::kCompress ? ArtefactName(name) : RestoredName(name);
}

// The files below `folder` that `mode` takes, relative to it, by name.
absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& folder,
                                                    Mode mode) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::recursive_directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::recursive_directory_iterator()) {
    std::error_code unreadable;
    const std::filesystem::path& path = entry->path();
    if (entry->is_regular_file(unreadable) &&
        Takes(mode, path.filename().string())) {
      names.push_back(path.lexically_relative(folder).string());
    }
    entry.increment(error);
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("read input: read ", folder, ": ", error.message()));
  }
  if (names.empty()) {
    const bool artefacts = mode == Mode::kDecompress || mode == Mode::kVerify;
    return absl::InvalidArgumentError(absl::StrCat(
        "read input: no file below ", folder, " ends with ",
        artefacts ? kArtefactSuffix : kCacheSuffix,
        ": name the files themselves where they are called otherwise"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Joined(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

absl::Status AddTask(const Flags& flags, const std::string& input,
                     const std::string& relative,
                     std::vector<FileTask>* tasks) {
  if (!Writes(flags.mode)) {
    tasks->push_back({.input = input, .output = "", .label = ""});
    return absl::OkStatus();
  }
  if (input == "-") {
    return absl::InvalidArgumentError(
        "standard input has no name that its output in a folder could have: "
        "give it alone, with a file for -output");
  }
  const std::filesystem::path place(relative);
  const std::string name = OutputName(flags.mode, place.filename().string());
  tasks->push_back(
      {.input = input,
       .output = Joined(flags.output, (place.parent_path() / name).string()),
       .label = ""});
  return absl::OkStatus();
}

absl::Status CheckDistinct(const std::vector<FileTask>& tasks) {
  std::map<std::string, std::string> inputs;
  for (const FileTask& task : tasks) {
    if (task.output.empty()) continue;
    const auto [position, added] = inputs.emplace(task.output, task.input);
    if (!added) {
      return absl::InvalidArgumentError(absl::StrCat(
          position->second, " and ", task.input, " would both be written to ",
          task.output, ": give them output folders of their own"));
    }
  }
  return absl::OkStatus();
}

// Makes the folder that `path` lies in.
absl::Status MakeFolderOf(const std::string& path) {
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("write output: ", folder.string(), ": ", error.message()));
}

// A line of JSON: the names, then the report or the error.
std::string JsonLine(const FileTask& task, const FileResult& result) {
  Json line = {{"input", task.input},
               {"output", task.output.empty() ? Json() : Json(task.output)},
               {"exit_status", ExitStatus(result)}};
  if (!result.json.is_null()) line.update(result.json);
  if (!result.error.ok()) line["error"] = ErrorJson(result.error);
  return PrintLine(line);
}

}  // namespace

bool IsBatch(const Flags& flags) {
  if (!flags.several) return false;
  return flags.inputs.size() > 1 || IsFolder(flags.input) ||
         (Writes(flags.mode) &&
          (absl::EndsWith(flags.output, "/") || IsFolder(flags.output)));
}

std::string ArtefactName(absl::string_view name) {
  return absl::StrCat(absl::StripSuffix(name, kCacheSuffix), kArtefactSuffix);
}

std::string RestoredName(absl::string_view name) {
  if (absl::ConsumeSuffix(&name, kArtefactSuffix)) {
    return absl::StrCat(name, kCacheSuffix);
  }
  return absl::StrCat(absl::StripSuffix(name, kCacheSuffix), ".restored",
                      kCacheSuffix);
}

absl::StatusOr<std::vector<FileTask>> ListTasks(const Flags& flags) {
  std::error_code ignored;
  if (Writes(flags.mode) && !IsFolder(flags.output) &&
      (flags.output == "-" || std::filesystem::exists(flags.output, ignored))) {
    return absl::InvalidArgumentError(
        absl::StrCat("write output: ", flags.output,
                     " is no folder: several inputs need one for -output"));
  }
  std::vector<FileTask> tasks;
  for (const std::string& input : flags.inputs) {
    absl::Status status;
    if (!IsFolder(input)) {
      const std::string name = std::filesystem::path(input).filename().string();
      status = AddTask(flags, input, name, &tasks);
    } else {
      absl::StatusOr<std::vector<std::string>> names =
          FilesBelow(input, flags.mode);
      status = names.status();
      for (size_t i = 0; status.ok() && i < names->size(); ++i) {
        status =
            AddTask(flags, Joined(input, (*names)[i]), (*names)[i], &tasks);
      }
    }
    if (!status.ok()) return status;
  }
  absl::Status status = CheckDistinct(tasks);
  if (!status.ok()) return status;
  for (size_t i = 0; tasks.size() > 1 && i < tasks.size(); ++i) {
    tasks[i].label = absl::StrCat(i + 1, "/", tasks.size());
  }
  return tasks;
}

absl::StatusOr<int> RunBatch(const Flags& flags) {
  const absl::StatusOr<std::vector<FileTask>> tasks = ListTasks(flags);
  if (!tasks.ok()) return tasks.status();
  LazyConnection service(flags);
  const bool table = PrintsTable(flags, stdout);
  absl::Status status;
  if (table) status = PrintText(BatchHeading(flags.mode), stdout);
  int worst = kExitOk;
  for (const FileTask& task : *tasks) {
    if (!status.ok()) return status;
    FileResult result;
    if (Writes(flags.mode)) result.error = MakeFolderOf(task.output);
    if (result.error.ok()) result = RunFile(flags, task, &service);
    if (result.report && !flags.quiet) {
      PrintWarnings(*result.report, absl::StrCat(task.input, ": "));
    }
    if (!result.error.ok()) {
      absl::FPrintF(stderr, "Error: %s: %s\n", Printable(task.input),
                    Printable(result.error.message()));
    }
    worst = Worse(worst, ExitStatus(result));
    status = PrintText(table ? BatchRow(flags.mode, task.input, result.json)
                             : JsonLine(task, result),
                       stdout);
  }
  if (!status.ok()) return status;
  return worst;
}

}  // namespace kvcompress::cli
