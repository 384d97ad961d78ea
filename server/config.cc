// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "config.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "config_file.h"
#include "environment.h"
#include "flags.h"
#include "kvcompress/nearest_name.h"
#include "kvcompress/version.h"

namespace kvcompress {
namespace {

using FileSettings = std::map<std::string, FileSetting>;

constexpr char kConfigVariable[] = "KVCOMPRESS_CONFIG";

// The values of `flag`, with their source for messages; none leaves the
// default.
std::pair<std::vector<std::string>, std::string> ValuesOf(
    const Flag& flag, const CLI::Option& option,
    const std::vector<std::string>& given, const FileSettings& file) {
  if (option.count() > 0) {
    std::vector<std::string> values = given;
    // CLI11 drops an empty value, except of a flag that may stand alone.
    if (values.empty()) values.emplace_back();
    if (*flag.value == '\0' && values[0].empty()) values[0] = "true";
    return {values, absl::StrCat("--", flag.name)};
  }
  const std::string name = VariableName(flag);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
  const char* variable = std::getenv(name.c_str());
  if (variable != nullptr && (*variable != '\0' || flag.may_be_empty)) {
    return {{variable}, name};
  }
  const auto setting = file.find(flag.name);
  if (setting == file.end()) return {};
  return {setting->second.values, setting->second.source};
}

// What the file has that --config or else its variable names; nothing without.
absl::StatusOr<FileSettings> SettingsOfFile(std::string path) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
  const char* variable = std::getenv(kConfigVariable);
  if (path.empty() && variable != nullptr) path = variable;
  if (path.empty()) return FileSettings();
  return ReadConfigFile(path);
}

// The arguments in the order CLI11 wants, last first, and `--flag=` written as
// two: CLI11 would miss a value there.
std::vector<std::string> ReversedArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    absl::string_view argument = argv[i];
    if (absl::StartsWith(argument, "--") &&
        argument.find('=') == argument.size() - 1) {
      argument.remove_suffix(1);
      arguments.emplace_back();
    }
    arguments.emplace_back(argument);
  }
  return arguments;
}

// Checks flags against each other.
absl::Status CheckTogether(const DaemonOptions& options) {
  if (options.tls.certificate.empty() != options.tls.key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  if (!options.tls.client_ca.empty() && !options.tls.enabled()) {
    return absl::InvalidArgumentError(
        "--tls-client-ca needs --tls-cert and --tls-key");
  }
  if (!options.access.empty() && options.tls.client_ca.empty()) {
    return absl::InvalidArgumentError(
        "--allow needs --tls-client-ca, which gives clients an identity");
  }
  if (options.tls.enabled() || options.insecure) return absl::OkStatus();
  for (const ListenAddress& address : options.listen) {
    if (address.is_local()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: other machines can reach ", address.ToString(),
        " in plain text: set --tls-cert and --tls-key, or --insecure"));
  }
  return absl::OkStatus();
}

// "; did you mean --listen?" of the first argument that CLI11 does not know.
std::string MeantFlag(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    names.push_back(option->get_name());
  }
  const absl::string_view first = unknown.front();
  return DidYouMean(first.substr(0, first.find('=')), names);
}

std::string VersionText() {
  return absl::StrCat("kv-compressd ", kVersion, " (API ", kApiVersion,
                      ", artefact format ", kFormatVersion, ")");
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc,
                                             const char* const* argv) {
  CLI::App app(
      "kv-compressd compresses KV caches with measured quality, over gRPC.",
      "kv-compressd");
  app.footer(
      "Every flag can also be set by an environment variable: "
      "--drain-delay-seconds by KVCOMPRESS_DRAIN_DELAY_SECONDS, and by a line "
      "of the configuration file: drain-delay-seconds: 5. A flag overrides its "
      "variable, which overrides the file. BYTES may have a unit: 512MiB, "
      "2GiB.");
  app.set_version_flag("--version", VersionText(), "Print the versions");
  CommandLine line;
  app.add_flag("--check-config", line.check_only,
               "Check the options and the files they name, then exit");
  app.add_flag("--probe", line.probe_only,
               "Check the health of the server that runs with these options, "
               "then exit: 0 when it is SERVING");
  std::string config;
  app.add_option("--config", config,
                 "YAML file with options: names of flags without the dashes, "
                 "and their values [none]")
      ->type_name("FILE");
  const absl::Span<const Flag> flags = AllFlags();
  std::vector<std::vector<std::string>> given(flags.size());
  std::vector<CLI::Option*> options(flags.size());
  for (size_t i = 0; i < flags.size(); ++i) {
    const Flag& flag = flags[i];
    options[i] =
        app.add_option(absl::StrCat("--", flag.name), given[i], flag.help)
            ->type_name(flag.value)
            ->type_size(1)
            ->expected(*flag.value == '\0' ? 0 : 1, 1)
            ->allow_extra_args(false);
    if (flag.is_list) {
      options[i]->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }

  try {
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
    return line;
  } catch (const CLI::CallForVersion&) {
    line.answer = absl::StrCat(VersionText(), "\n");
    return line;
  } catch (const CLI::ExtrasError& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(error.what(), MeantFlag(app)));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }

  const absl::StatusOr<FileSettings> file = SettingsOfFile(config);
  if (!file.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config: ", file.status().message()));
  }
  for (size_t i = 0; i < flags.size(); ++i) {
    auto [values, source] = ValuesOf(flags[i], *options[i], given[i], *file);
    if (values.empty()) continue;
    if (flags[i].is_list) {
      values = absl::StrSplit(absl::StrJoin(values, ","), ',');
    }
    const absl::Status status = flags[i].set(values, &line.options);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": ", status.message()));
    }
  }
  if (absl::Status status = CheckTogether(line.options); !status.ok()) {
    return status;
  }
  line.warnings = UnknownVariables(environ);
  return line;
}

}  // namespace kvcompress
