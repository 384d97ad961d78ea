// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/subcommands.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvcompress/error.h"
#include "kvcompress/nearest_name.h"

namespace kvcompress::cli {
namespace {

constexpr absl::string_view kFiles = "[FLAGS] FILE...";

// Flags that several commands have.
constexpr absl::string_view kOutputs = "output input force";
constexpr absl::string_view kCodec = "codec effort profile threads";
constexpr absl::string_view kCodecParts =
    "label preset group-size sparsity last-stage";
constexpr absl::string_view kTensors =
    "thresholds key-thresholds value-thresholds min-snr-db metrics layout keys "
    "values model-config rope rope-theta";

constexpr Command kCommands[] = {
    {"compress",
     kFiles,
     "to NAME.kvc.safetensors",
     {kOutputs, kCodec, kCodecParts, kTensors}},
    {"restore",
     kFiles,
     "to NAME.restored.safetensors",
     {kOutputs, "profile threads label tensors tokens order"}},
    {"compare",
     kFiles,
     "ratio, quality and speed of codecs",
     {kCodec, kTensors}},
    {"verify",
     kFiles,
     "decode artefacts, check everything",
     {"profile threads label"}},
    {"info", kFiles, "list what files hold", {"keys values"}},
    {"measure",
     kFiles,
     "quality, and write nothing",
     {kCodec, kCodecParts, kTensors}},
    {"train",
     "[FLAGS] -o PROFILE FILE...",
     "a profile of a model",
     {"output force model-label profile-layers profile-components "
      "train-presets train-metric train-contract train-basis train-note keys "
      "values rope-theta"}},
    {"bench",
     "[FLAGS] -server ADDRESS",
     "speed of a server under load",
     {"input codec effort profile metrics layout keys values model-config rope "
      "rope-theta concurrency size seconds"}},
};

constexpr absl::string_view kEveryCommand =
    "format json verbose quiet progress server shared-directory tls-ca "
    "tls-cert tls-key help";

bool HasName(absl::string_view list, absl::string_view name) {
  const std::vector<absl::string_view> names = absl::StrSplit(list, ' ');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A word that could only be meant for a command.
bool IsBareWord(const std::string& argument) {
  std::error_code ignored;
  return !absl::StartsWith(argument, "-") &&
         argument.find_first_of("./") == std::string::npos &&
         !std::filesystem::exists(argument, ignored);
}

// Moves the first file to `*named`, the value of a flag that has one.
void Name(RawFlags* raw, std::optional<std::string>* named) {
  if (!raw->input.empty()) {
    *named = std::exchange(raw->input, "");
    return;
  }
  *named = raw->files.front();
  raw->files.erase(raw->files.begin());
}

}  // namespace

absl::Span<const Command> Commands() { return kCommands; }

const Command* FindCommand(absl::string_view name) {
  const Command* const found =
      std::find_if(std::begin(kCommands), std::end(kCommands),
                   [&](const Command& each) { return each.name == name; });
  return found == std::end(kCommands) ? nullptr : found;
}

std::vector<FlagDescription> FlagsOf(const Command& command) {
  std::vector<FlagDescription> flags = DescribeFlags();
  std::erase_if(flags, [&](const FlagDescription& flag) {
    return !HasName(kEveryCommand, flag.name) &&
           std::none_of(command.flags.begin(), command.flags.end(),
                        [&](absl::string_view list) {
                          return HasName(list, flag.name);
                        });
  });
  return flags;
}

absl::StatusOr<const Command*> TakeCommand(
    std::vector<std::string>* arguments) {
  if (arguments->empty()) return nullptr;
  const std::string& first = arguments->front();
  const Command* const command = FindCommand(first);
  if (command != nullptr) {
    arguments->erase(arguments->begin());
    return command;
  }
  std::vector<std::string> names;
  for (const Command& each : kCommands) names.emplace_back(each.name);
  const std::string meant = DidYouMean(first, names);
  if (meant.empty() || !IsBareWord(first)) return nullptr;
  return absl::InvalidArgumentError(absl::StrCat(
      QuoteName(first), " is neither a command nor a file", meant));
}

absl::Status ApplyCommand(const Command& command, RawFlags* raw) {
  if (raw->decompress || raw->metrics_only || raw->info || raw->verify ||
      raw->compare || raw->train_profile) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the command ", command.name,
        " says what is done: leave out -decompress, -metrics-only, -info, "
        "-verify, -compare and -train-profile"));
  }
  if (command.name == "bench") {
    raw->bench = true;
    if (!raw->server.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "bench needs a server: kv-compress bench -server HOST:PORT");
  }
  if (raw->files.empty() && raw->input.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(command.name, " needs a file: kv-compress ", command.name,
                     " ", command.arguments));
  }
  if (command.name == "restore") raw->decompress = true;
  if (command.name == "measure") raw->metrics_only = true;
  if (command.name == "compare") Name(raw, &raw->compare);
  if (command.name == "verify") Name(raw, &raw->verify);
  if (command.name == "info") Name(raw, &raw->info);
  if (command.name == "train") {
    if (!raw->output) {
      return absl::InvalidArgumentError(
          "train needs a file to write: -o PROFILE");
    }
    raw->train_profile = std::exchange(raw->output, std::nullopt);
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::cli
