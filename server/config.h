// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The options of kv-compressd, from its flags, environment and configuration
// file.
//
// Every flag `--some-name` is also the variable KVCOMPRESS_SOME_NAME and the
// key `some-name` of the file that --config names. A flag wins over its
// variable, and that over the file. A variable that is set but empty counts as
// not set, except KVCOMPRESS_METRICS_LISTEN, where empty means none.

#ifndef KVCOMPRESS_SERVER_CONFIG_H_
#define KVCOMPRESS_SERVER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "access.h"
#include "address.h"
#include "certificates.h"
#include "kvcompress/safetensors.h"

namespace kvcompress {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };
enum class LogFormat : uint8_t { kText, kJson };

struct DaemonOptions {
  // Where gRPC listens; at least one address, none twice. --listen
  std::vector<ListenAddress> listen = {{"127.0.0.1", 50051, ""}};

  // Permission bits of Unix sockets; nothing for what the umask leaves.
  // --unix-socket-mode
  std::optional<uint32_t> unix_socket_mode;

  // The files for TLS on every address that is not a Unix socket; empty for
  // plain text. --tls-cert, --tls-key, --tls-client-ca
  TlsFiles tls;

  // Who may call what; empty: everybody everything. --allow
  AccessRules access;

  // How often to look whether those files have changed: 0.1 to 86,400 seconds.
  // --tls-reload-seconds
  absl::Duration tls_reload_interval = absl::Seconds(10);

  // The directory of shared-directory transfers; empty for none.
  // --shared-directory
  std::string shared_directory;

  // Where the profiles are that klt may compress with and that artefacts may
  // need; empty for none. --profile-directory
  std::string profile_directory;

  // Most bytes of all of them together, 2^20 to 2^40. --max-profile-bytes
  uint64_t max_profile_bytes = uint64_t{256} << 20;

  // How often to look whether these files have changed: 0.1 to 86,400 seconds.
  // --profile-reload-seconds
  absl::Duration profile_reload_interval = absl::Seconds(10);

  // Whether to listen in plain text where other machines can reach it.
  // --insecure
  bool insecure = false;

  // Where /, /metrics, /healthz, /livez and /statusz are served over HTTP: a
  // host and a port, or nothing for no HTTP at all. --metrics-listen
  std::optional<ListenAddress> metrics_listen =
      ListenAddress{"127.0.0.1", 9464, ""};

  // The least severe lines logged. --log-level
  LogLevel log_level = LogLevel::kInfo;
  // --log-format
  LogFormat log_format = LogFormat::kText;

  // The set of kernels, as kvcompress::SelectKernels takes it; empty for the
  // fastest that the machine can run. --kernels
  std::string kernels;

  // Longest header of a file, in bytes: 1,024 to 100,000,000.
  // --max-header-bytes
  uint64_t max_header_bytes = kMaxSafetensorsHeader;

  // Largest request message, in bytes: 65,536 to 1,073,741,824.
  // --max-message-bytes
  uint64_t max_message_bytes = 8 << 20;

  // Largest tensor taken by a codec that holds a whole tensor, in bytes: 2^20
  // to 2^40. --max-tensor-bytes
  uint64_t max_tensor_bytes = uint64_t{1} << 30;

  // Memory for all streams together, in bytes: 2^24 to 2^50; nothing for what
  // DefaultMemoryBudget says. --memory-budget-bytes
  std::optional<uint64_t> memory_budget_bytes;

  // The most of that memory that one client may hold: 1 to 100 percent.
  // --client-budget-percent
  int client_budget_percent = 100;
  // --threads; nothing for one on each processor.
  std::optional<int> call_threads;

  // Longest that a stream may wait for its client to send or to take the next
  // message: 0.1 to 86,400 seconds. --stall-seconds
  absl::Duration stall = absl::Minutes(2);

  // Longest that a call may last, whatever its deadline: 0.1 to 604,800
  // seconds.
  // --max-call-seconds
  absl::Duration max_call = absl::Hours(1);

  // How long a connection lasts before its client is asked to make another; the
  // calls on it go on. 0 for ever, to 86,400 seconds.
  // --max-connection-age-seconds
  absl::Duration max_connection_age = absl::ZeroDuration();

  // Most connections of gRPC at once, 1 to 1,000,000; nothing for what
  // PlanConnections says. --max-connections
  std::optional<int> max_connections;

  // Most of them from one host, 1 to 1,000,000; nothing for half.
  // --max-connections-per-host
  std::optional<int> max_connections_per_host;

  // How long a connection may carry no call before its client is asked to close
  // it. 0 for ever, to 86,400 seconds. --max-connection-idle-seconds
  absl::Duration max_connection_idle = absl::Minutes(10);

  // How long new connections may not be served, other than because there are
  // too many, before the server ends with an error: 0.1 to 86,400 seconds,
  // infinite for 0, which says never. --unreachable-exit-seconds
  absl::Duration unreachable_exit = absl::Minutes(1);

  // How long to keep serving after SIGTERM while health says NOT_SERVING, for
  // load balancers to look elsewhere: 0 to 3,600 seconds, fractions allowed.
  // --drain-delay-seconds
  absl::Duration drain_delay = absl::ZeroDuration();

  // How long running streams may take to finish after that, before they are
  // cancelled: 0 to 3,600 seconds, fractions allowed.
  // --shutdown-grace-seconds
  absl::Duration shutdown_grace = absl::Seconds(30);
};

struct CommandLine {
  DaemonOptions options;
  // Check the options and what they name, serve nothing. --check-config
  bool check_only = false;
  // Ask the server that runs with these options whether it is SERVING. --probe
  bool probe_only = false;
  // What is likely a mistake and no error: see UnknownVariables.
  std::vector<std::string> warnings;
  // When set: print this on stdout and exit with 0 (--help, --version).
  std::optional<std::string> answer;
};

// INVALID_ARGUMENT, naming the flag, the variable, or the file and the line,
// for whatever is outside the ranges above, for a configuration file that
// ReadConfigFile refuses, and for plain text that other machines can reach,
// without --insecure. Reads no other files. Not thread safe: reads the
// environment.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CONFIG_H_
