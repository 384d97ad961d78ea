// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/batch.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/cli/advice.h"
#include "client/cli/commands.h"
#include "client/cli/file_type.h"
#include "client/cli/printing.h"
#include "client/cli/report_json.h"
#include "client/cli/service_connection.h"
#include "client/cli/text_tables.h"
#include "client/cpp/status.h"
#include "kvcompress/error.h"
#include "kvcompress/file_identity.h"
#include "kvcompress/output_file.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kCacheSuffix = ".safetensors";
constexpr absl::string_view kArtefactSuffix = ".kvc.safetensors";

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool TakesArtefacts(Mode mode) {
  return mode == Mode::kDecompress || mode == Mode::kVerify;
}

// What `mode` does with a file that is found in a folder.
enum class Use { kTaken, kPassedOver, kCompressedAlready };

Use UseOf(Mode mode, const std::string& path) {
  const bool named = absl::EndsWith(path, kArtefactSuffix);
  if (TakesArtefacts(mode)) return named ? Use::kTaken : Use::kPassedOver;
  if (!absl::EndsWith(path, kCacheSuffix)) return Use::kPassedOver;
  if (mode == Mode::kInfo) return Use::kTaken;
  return named || IsArtefact(path) ? Use::kCompressedAlready : Use::kTaken;
}

// "1 artefact", "2 artefacts".
std::string Counted(size_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

// The name of the output for an input of this name.
std::string OutputName(Mode mode, absl::string_view name) {
  return mode == Mode::kCompress ? ArtefactName(name) : RestoredName(name);
}

// The files below `folder` that `mode` takes, relative to it, by name. Adds a
// sentence to `*skipped` where there are artefacts that it does not.
absl::StatusOr<std::vector<std::string>> FilesBelow(
    const std::string& folder, Mode mode, std::vector<std::string>* skipped) {
  size_t artefacts = 0;
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::recursive_directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::recursive_directory_iterator()) {
    std::error_code unreadable;
    const std::filesystem::path& path = entry->path();
    const Use use = entry->is_regular_file(unreadable)
                        ? UseOf(mode, path.string())
                        : Use::kPassedOver;
    if (use == Use::kTaken) {
      names.push_back(path.lexically_relative(folder).string());
    }
    artefacts += use == Use::kCompressedAlready ? 1 : 0;
    entry.increment(error);
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("read input: read ", folder, ": ", error.message()));
  }
  if (names.empty()) {
    return absl::InvalidArgumentError(
        artefacts > 0
            ? absl::StrCat("read input: below ", folder, " there is nothing ",
                           "but ", Counted(artefacts, "artefact"),
                           ", compressed already: -decompress restores them")
            : absl::StrCat(
                  "read input: no file below ", folder, " ends with ",
                  TakesArtefacts(mode) ? kArtefactSuffix : kCacheSuffix,
                  ": name the files themselves where they are called "
                  "otherwise"));
  }
  if (artefacts > 0) {
    skipped->push_back(absl::StrCat("Skipped ", Counted(artefacts, "artefact"),
                                    " below ", folder, ", compressed already"));
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
  if (flags.output.empty()) {
    tasks->push_back({.input = input,
                      .output = DefaultOutput(flags.mode, input),
                      .label = ""});
    return absl::OkStatus();
  }
  const std::filesystem::path place(relative);
  const std::string name = OutputName(flags.mode, place.filename().string());
  tasks->push_back(
      {.input = input,
       .output = Joined(flags.output, (place.parent_path() / name).string()),
       .label = ""});
  return absl::OkStatus();
}

// Two outputs of one name, and outputs that are the input of any task.
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
  std::set<FileIdentity> read;
  for (const FileTask& task : tasks) {
    if (const auto file = IdentityOf(task.input)) read.insert(*file);
  }
  for (const FileTask& task : tasks) {
    const std::optional<FileIdentity> there = IdentityOf(task.output);
    if (there && read.contains(*there)) {
      return Annotate(SameFileError(task.output), "write output: ");
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

// What standard error gets besides the results: warnings and errors of files,
// and how many there were, by what became of them.
struct Outcomes {
  std::string warnings;
  std::string errors;
  size_t done = 0;
  size_t missed = 0;  // a bound
  size_t failed = 0;
  size_t poor = 0;

  void Add(const FileTask& task, const FileResult& result) {
    const int status = ExitStatus(result);
    ++(status == kExitOk ? done : status == kExitGate ? missed : failed);
    if (result.report) {
      poor += IsPoor(*result.report) ? 1 : 0;
      absl::StrAppend(&warnings, WarningLines(*result.report,
                                              absl::StrCat(task.input, ": ")));
    }
    if (!result.error.ok()) {
      absl::StrAppend(&errors, ErrorLine(task, result.error));
    }
  }

  // Prints what there is so far.
  void PrintRemarks(bool quiet) {
    const std::string said = std::exchange(warnings, "");
    absl::FPrintF(stderr, "%s%s", quiet ? "" : said, std::exchange(errors, ""));
  }

  // Prints what concerns all of them. In JSON each line has its outcome.
  void PrintSummary(const Flags& flags, bool table) const {
    const size_t files = done + missed + failed;
    if (poor > 0 && !flags.quiet) {
      absl::FPrintF(stderr, "%s", PoorLine(poor, files));
    }
    const bool wanted =
        flags.quiet ? failed > 0 : table || missed > 0 || failed > 0;
    if (files > 1 && wanted) {
      absl::FPrintF(stderr, "%s\n", ToString(flags.mode));
    }
  }

  // "60 files: 57 compressed, 3 failed".
  std::string ToString(Mode mode) const {
    const absl::string_view verb = mode == Mode::kDecompress ? "restored"
                                   : mode == Mode::kVerify   ? "verified"
                                   : mode == Mode::kInfo     ? "listed"
                                   : mode == Mode::kMeasure  ? "measured"
                                                             : "compressed";
    std::string text = absl::StrCat(Counted(done + missed + failed, "file"),
                                    ": ", done, " ", verb);
    if (missed > 0) {
      absl::StrAppend(&text, ", ", missed, " not within the bounds");
    }
    if (failed > 0) absl::StrAppend(&text, ", ", failed, " failed");
    return text;
  }
};

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

std::string DefaultOutput(Mode mode, const std::string& input) {
  if (mode == Mode::kCompress) return ArtefactName(input);
  return RestoredName(absl::StripSuffix(input, kArtefactSuffix));
}

absl::StatusOr<TaskList> ListTasks(const Flags& flags) {
  std::error_code ignored;
  if (Writes(flags.mode) && !IsFolder(flags.output) &&
      (flags.output == "-" || std::filesystem::exists(flags.output, ignored))) {
    return absl::InvalidArgumentError(
        absl::StrCat("write output: ", flags.output,
                     " is no folder: several inputs need one for -output"));
  }
  TaskList list;
  std::vector<FileTask>& tasks = list.tasks;
  for (const std::string& input : flags.inputs) {
    absl::Status status;
    if (!IsFolder(input)) {
      const std::string name = std::filesystem::path(input).filename().string();
      status = AddTask(flags, input, name, &tasks);
    } else {
      absl::StatusOr<std::vector<std::string>> names =
          FilesBelow(input, flags.mode, &list.skipped);
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
  return list;
}

void PrintSkipped(const Flags& flags, const TaskList& list) {
  if (flags.quiet) return;
  for (const std::string& sentence : list.skipped) {
    absl::FPrintF(stderr, "%s\n", Printable(sentence));
  }
}

absl::StatusOr<int> RunBatch(const Flags& flags) {
  const absl::StatusOr<TaskList> list = ListTasks(flags);
  if (!list.ok()) return list.status();
  PrintSkipped(flags, *list);
  LazyConnection service(flags);
  const bool table = PrintsTable(flags, stdout);
  absl::Status status;
  if (table) status = PrintText(BatchHeading(flags.mode), stdout);
  int worst = kExitOk;
  Outcomes outcomes;
  for (const FileTask& task : list->tasks) {
    if (!status.ok()) break;
    FileResult result;
    if (Writes(flags.mode)) result.error = MakeFolderOf(task.output);
    if (result.error.ok()) result = RunFile(flags, task, &service);
    outcomes.Add(task, result);
    if (!table) outcomes.PrintRemarks(flags.quiet);
    worst = Worse(worst, ExitStatus(result));
    status = PrintText(table ? BatchRow(flags.mode, task.input, result.json)
                             : JsonLine(task, result),
                       stdout);
  }
  // Behind a table, whose rows they would tear apart.
  outcomes.PrintRemarks(flags.quiet);
  if (!status.ok()) return status;
  outcomes.PrintSummary(flags, table);
  return worst;
}

}  // namespace kvcompress::cli
