// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "config.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "flag_values.h"
#include "kvcompress/version.h"

namespace kvcompress {
namespace {

struct Flag {
  const char* name;
  // What its value is; empty for a flag that is true or false, and true when
  // it stands alone.
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

// Of the flags that bound what a server does while it stops.
constexpr double kMaxPause = 3600;
constexpr double kDay = 86400;
constexpr int kMaxCount = 1'000'000;

constexpr Flag kFlags[] = {
    {"listen", "ADDRESS",
     "Address for gRPC: HOST:PORT, [IPV6]:PORT or unix:PATH; repeatable, or "
     "separated by commas; port 0 lets the system choose [127.0.0.1:50051]",
     true, false,
     [](Values v, DaemonOptions* o) { return SetListen(v, &o->listen); }},
    {"metrics-listen", "ADDRESS",
     "Address for HTTP: /metrics, /healthz, /livez and /statusz; empty for "
     "none [127.0.0.1:9464]",
     false, true,
     [](Values v, DaemonOptions* o) {
       return SetMetricsListen(v[0], &o->metrics_listen);
     }},
    {"unix-socket-mode", "MODE",
     "Permissions of Unix sockets, in octal [according to the umask]", false,
     false,
     [](Values v, DaemonOptions* o) {
       return SetMode(v[0], &o->unix_socket_mode);
     }},
    {"tls-cert", "FILE",
     "PEM file with the server's certificate, followed by intermediate "
     "certificates; enables TLS on every address except Unix sockets",
     false, false,
     [](Values v, DaemonOptions* o) {
       o->tls.certificate = v[0];
       return absl::OkStatus();
     }},
    {"tls-key", "FILE", "PEM file with the private key of the certificate",
     false, false,
     [](Values v, DaemonOptions* o) {
       o->tls.key = v[0];
       return absl::OkStatus();
     }},
    {"tls-client-ca", "FILE",
     "PEM file with CA certificates; clients must present a certificate signed "
     "by one of them [clients need no certificate]",
     false, false,
     [](Values v, DaemonOptions* o) {
       o->tls.client_ca = v[0];
       return absl::OkStatus();
     }},
    {"allow", "RULE",
     "Access rule METHODS=IDENTITY: METHODS is a list joined by +, or *; "
     "IDENTITY is a subject alternative name of the client's certificate, and "
     "may end in *; repeatable, or separated by commas; calls that no rule "
     "allows are rejected [every client may call every method]",
     true, false,
     [](Values v, DaemonOptions* o) { return SetAccess(v, &o->access); }},
    {"tls-reload-seconds", "SECONDS",
     "How often to check the three TLS files for changes, 0.1 to 86400 [10]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], 0.1, kDay, &o->tls_reload_interval);
     }},
    {"shared-directory", "DIR",
     "Directory in which clients on Unix sockets may name files to read and "
     "write, instead of sending their bytes; fastest in memory [none]",
     false, false,
     [](Values v, DaemonOptions* o) {
       o->shared_directory = v[0];
       return absl::OkStatus();
     }},
    {"profile-directory", "DIR",
     "Directory with profiles, files NAME.profile, that klt may compress with "
     "and that artefacts may need; read again when files change [none]",
     false, false,
     [](Values v, DaemonOptions* o) {
       o->profile_directory = v[0];
       return absl::OkStatus();
     }},
    {"max-profile-bytes", "BYTES",
     "Memory for all profiles together, 1048576 to 1099511627776; further "
     "ones are refused [268435456]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetBytes(v[0], 1 << 20, uint64_t{1} << 40, &o->max_profile_bytes);
     }},
    {"profile-reload-seconds", "SECONDS",
     "How often to check the directory of profiles for changes, 0.1 to 86400 "
     "[10]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], 0.1, kDay, &o->profile_reload_interval);
     }},
    {"insecure", "",
     "Allow plain text on addresses that other machines can reach", false,
     false,
     [](Values v, DaemonOptions* o) { return SetBool(v[0], &o->insecure); }},
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
     "CPU kernels: avx512, avx2, sse4, neon or portable; all produce the same "
     "bytes [the fastest available]",
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
     "Longest safetensors header, 1024 to 100000000 [100000000]", false, false,
     [](Values v, DaemonOptions* o) {
       return SetBytes(v[0], 1024, kMaxSafetensorsHeader, &o->max_header_bytes);
     }},
    {"max-message-bytes", "BYTES",
     "Largest request message, 65536 to 1073741824 [8388608]", false, false,
     [](Values v, DaemonOptions* o) {
       return SetBytes(v[0], 64 << 10, 1 << 30, &o->max_message_bytes);
     }},
    {"max-tensor-bytes", "BYTES",
     "Largest tensor for codecs that hold a whole tensor in memory, 1048576 to "
     "1099511627776 [1073741824]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetBytes(v[0], 1 << 20, uint64_t{1} << 40, &o->max_tensor_bytes);
     }},
    {"memory-budget-bytes", "BYTES",
     "Memory budget of all streams together, 16777216 to 1125899906842624 "
     "[half of what the memory limit leaves beyond 64 MiB]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetBytes(v[0], 1 << 24, uint64_t{1} << 50,
                       &o->memory_budget_bytes.emplace());
     }},
    {"client-budget-percent", "PERCENT",
     "Largest share of the memory budget for one client, 1 to 100 [100]", false,
     false,
     [](Values v, DaemonOptions* o) {
       return SetPercent(v[0], &o->client_budget_percent);
     }},
    {"threads", "COUNT",
     "How many threads work on a call at a time, at most, 1 to 1024 [one on "
     "each processor]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetCount(v[0], 1024, &o->call_threads);
     }},
    {"stall-seconds", "SECONDS",
     "How long a stream may wait for its client to send or to read data, 0.1 "
     "to "
     "86400 [120]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], 0.1, kDay, &o->stall);
     }},
    {"max-call-seconds", "SECONDS",
     "Longest duration of a call, whatever its deadline, 0.1 to 604800 [3600]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], 0.1, 7 * kDay, &o->max_call);
     }},
    {"max-connection-age-seconds", "SECONDS",
     "Age at which a client is asked to reconnect, so that it discovers new "
     "servers; 0 for no limit, to 86400 [0]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], 0, kDay, &o->max_connection_age);
     }},
    {"max-connections", "NUMBER",
     "Limit on open connections, 1 to 1000000 [1024, or what the limit on file "
     "descriptors leaves]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetCount(v[0], kMaxCount, &o->max_connections);
     }},
    {"max-connections-per-host", "NUMBER",
     "Limit on connections from one host, 1 to 1000000; Unix sockets count as "
     "one host [half of --max-connections]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetCount(v[0], kMaxCount, &o->max_connections_per_host);
     }},
    {"max-connection-idle-seconds", "SECONDS",
     "How long a connection may have no call before its client is asked to "
     "close it; 0 for no limit, to 86400 [600]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], 0, kDay, &o->max_connection_idle);
     }},
    {"unreachable-exit-seconds", "SECONDS",
     "How long the server may fail to serve new connections, other than "
     "because "
     "it is full, before it exits with an error; 0 for never, to 86400 [60]",
     false, false,
     [](Values v, DaemonOptions* o) {
       absl::Status status = SetSeconds(v[0], 0, kDay, &o->unreachable_exit);
       if (o->unreachable_exit == absl::ZeroDuration()) {
         o->unreachable_exit = absl::InfiniteDuration();
       }
       return status;
     }},
    {"drain-delay-seconds", "SECONDS",
     "How long to keep serving after SIGTERM while health reports NOT_SERVING, "
     "0 to 3600 [0]",
     false, false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], 0, kMaxPause, &o->drain_delay);
     }},
    {"shutdown-grace-seconds", "SECONDS",
     "How long running streams may then take to finish, 0 to 3600 [30]", false,
     false,
     [](Values v, DaemonOptions* o) {
       return SetSeconds(v[0], 0, kMaxPause, &o->shutdown_grace);
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
    // CLI11 drops an empty value, except of a flag that may stand alone.
    if (values.empty()) values.emplace_back();
    if (*flag.value == '\0' && values[0].empty()) values[0] = "true";
  } else {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
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

// What no flag can tell alone.
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
      "--drain-delay-seconds by KVCOMPRESS_DRAIN_DELAY_SECONDS. BYTES may have "
      "a unit: 512MiB, 2GiB.");
  app.set_version_flag("--version", VersionText(), "Print the versions");
  CommandLine line;
  app.add_flag("--check-config", line.check_only,
               "Check the options and the files they name, then exit");
  app.add_flag("--probe", line.probe_only,
               "Check the health of the server that runs with these options, "
               "then exit: 0 when it is SERVING");
  std::vector<std::string> given[std::size(kFlags)];
  CLI::Option* options[std::size(kFlags)];
  for (size_t i = 0; i < std::size(kFlags); ++i) {
    const Flag& flag = kFlags[i];
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
  if (absl::Status status = CheckTogether(line.options); !status.ok()) {
    return status;
  }
  return line;
}

}  // namespace kvcompress
