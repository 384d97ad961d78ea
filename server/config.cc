// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "kvcompress/error.h"
#include "kvcompress/version.h"

namespace kvcompress {
namespace {

constexpr double kMaxSeconds = 3600;

absl::Status SetBytes(absl::string_view text, uint64_t min, uint64_t max,
                      uint64_t* bytes) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return absl::InvalidArgumentError(absl::StrCat(
        QuoteName(text), " is not a number of bytes from ", min, " to ", max));
  }
  *bytes = value;
  return absl::OkStatus();
}

absl::Status SetSeconds(absl::string_view text, absl::Duration* duration) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= 0) || value > kMaxSeconds) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(text), " is not a number of seconds from 0 to ",
                     kMaxSeconds));
  }
  *duration = absl::Seconds(value);
  return absl::OkStatus();
}

template <typename Enum>
absl::Status SetEnum(absl::string_view text,
                     absl::Span<const std::pair<absl::string_view, Enum>> names,
                     Enum* value) {
  std::string known;
  for (const auto& [name, candidate] : names) {
    if (name == text) {
      *value = candidate;
      return absl::OkStatus();
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteName(text), " is not one of ", known));
}

absl::Status SetListen(absl::Span<const std::string> texts,
                       std::vector<ListenAddress>* listen) {
  listen->clear();
  for (const std::string& text : texts) {
    absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
    if (!address.ok()) return address.status();
    const bool repeated =
        std::find(listen->begin(), listen->end(), *address) != listen->end();
    if (repeated && (address->is_unix() || address->port != 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat(address->ToString(), " is given twice"));
    }
    listen->push_back(*std::move(address));
  }
  return absl::OkStatus();
}

absl::Status SetMetricsListen(absl::string_view text,
                              std::optional<ListenAddress>* listen) {
  listen->reset();
  if (text.empty()) return absl::OkStatus();
  absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
  if (!address.ok()) return address.status();
  if (address->is_unix()) {
    return absl::InvalidArgumentError("metrics need HOST:PORT, not a path");
  }
  *listen = *std::move(address);
  return absl::OkStatus();
}

struct Flag {
  const char* name;
  const char* value;
  const char* help;
  // Whether it may be repeated, or list values with commas.
  bool is_list;
  // Whether an empty value means something.
  bool may_be_empty;
  // Checks and stores; at least one value.
  absl::Status (*set)(absl::Span<const std::string> values, DaemonOptions* out);
};

using Values = absl::Span<const std::string>;

constexpr Flag kFlags[] = {
    {"listen", "ADDRESS",
     "Where gRPC listens: HOST:PORT, [IPV6]:PORT or unix:PATH; repeatable, or "
     "separated by commas; port 0 lets the system choose [127.0.0.1:50051]",
     true, false,
     [](Values v, DaemonOptions* o) { return SetListen(v, &o->listen); }},
    {"metrics-listen", "ADDRESS",
     "Where HTTP serves /metrics and /healthz; empty for none "
     "[127.0.0.1:9464]",
     false, true,
     [](Values v, DaemonOptions* o) {
       return SetMetricsListen(v[0], &o->metrics_listen);
     }},
    {"log-level", "LEVEL", "debug, info, warn or error [info]", false, false,
     [](Values v, DaemonOptions* o) {
       return SetEnum<LogLevel>(v[0],
                                {{"debug", LogLevel::kDebug},
                                 {"info", LogLevel::kInfo},
                                 {"warn", LogLevel::kWarn},
                                 {"error", LogLevel::kError}},
                                &o->log_level);
     }},
    {"kernels", "NAME",
     "The arithmetic: avx512, avx2, sse4, neon or portable; all give the same "
     "bytes [the fastest]",
     false, false,
     [](Values v, DaemonOptions* o) {
       o->kernels = v[0];
       return absl::OkStatus();
     }},
    {"log-format", "FORMAT", "text or json, on stderr [text]", false, false,
     [](Values v, DaemonOptions* o) {
       return SetEnum<LogFormat>(
           v[0], {{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
           &o->log_format);
     }},
    {"max-header-bytes", "BYTES",
     "Longest header of a file, 1024 to 100000000 [100000000]", false, false,
     [](Values v, DaemonOptions* o) {
       return SetBytes(v[0], 1024, kMaxSafetensorsHeader, &o->max_header_bytes);
     }},
    {"max-message-bytes", "BYTES",
     "Largest request message, 65536 to 1073741824 [8388608]", false, false,
     [](Values v, DaemonOptions* o) {
       return SetBytes(v[0], 64 << 10, 1 << 30, &o->max_message_bytes);
     }},
    {"max-tensor-bytes", "BYTES",
     "Largest tensor for codecs that hold a whole tensor, 1048576 to "
     "1099511627776 [1073741824]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetBytes(v[0], 1 << 20, uint64_t{1} << 40, &o->max_tensor_bytes);
     }},
    {"drain-delay-seconds", "SECONDS",
     "How long to keep serving after SIGTERM while health says NOT_SERVING, 0 "
     "to 3600 [0]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], &o->drain_delay);
     }},
    {"shutdown-grace-seconds", "SECONDS",
     "How long running streams may take to finish when stopping, 0 to 3600 "
     "[30]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], &o->shutdown_grace);
     }},
};

std::string VariableName(const Flag& flag) {
  return absl::StrCat("KVCOMPRESS_", absl::AsciiStrToUpper(absl::StrReplaceAll(
                                         flag.name, {{"-", "_"}})));
}

// The values of `flag`, with their source for messages; none leaves the
// default.
std::pair<std::vector<std::string>, std::string> ValuesOf(
    const Flag& flag, const CLI::Option& option,
    const std::vector<std::string>& given) {
  std::vector<std::string> values;
  if (option.count() > 0) {
    values = given;
    // CLI11 drops an empty value.
    if (values.empty()) values.emplace_back();
  } else {
    const char* variable = std::getenv(VariableName(flag).c_str());
    if (variable == nullptr || (*variable == '\0' && !flag.may_be_empty)) {
      return {};
    }
    values.emplace_back(variable);
  }
  if (flag.is_list) {
    values = absl::StrSplit(absl::StrJoin(values, ","), ',');
  }
  return {values, option.count() > 0 ? absl::StrCat("--", flag.name)
                                     : VariableName(flag)};
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
      "Every flag is also an environment variable: --drain-delay-seconds is "
      "KVCOMPRESS_DRAIN_DELAY_SECONDS.");
  app.set_version_flag("--version", VersionText(), "Print the versions");
  std::vector<std::string> given[std::size(kFlags)];
  CLI::Option* options[std::size(kFlags)];
  for (size_t i = 0; i < std::size(kFlags); ++i) {
    const Flag& flag = kFlags[i];
    options[i] =
        app.add_option(absl::StrCat("--", flag.name), given[i], flag.help)
            ->type_name(flag.value)
            ->type_size(1)
            ->expected(1)
            ->allow_extra_args(false);
    if (flag.is_list) {
      options[i]->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }

  CommandLine line;
  try {
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
    return line;
  } catch (const CLI::CallForVersion&) {
    line.answer = absl::StrCat(VersionText(), "\n");
    return line;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }

  for (size_t i = 0; i < std::size(kFlags); ++i) {
    const auto [values, source] = ValuesOf(kFlags[i], *options[i], given[i]);
    if (values.empty()) continue;
    const absl::Status status = kFlags[i].set(values, &line.options);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": ", status.message()));
    }
  }
  return line;
}

}  // namespace kvcompress
