// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "flags.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "flag_values.h"

namespace kvcompress {
namespace {

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
     "Address for HTTP: /, /metrics, /healthz, /livez and /statusz; empty for "
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
     "Directory with profiles, files NAME.profile, that klt and lossless may "
     "compress with and that artefacts may need; read again when files change "
     "[none]",
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
     "CPU kernels: amx, avx512, avx2, sse4, neon or portable; all produce the "
     "same bytes [the fastest available]",
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

}  // namespace

absl::Span<const Flag> AllFlags() { return kFlags; }

std::string VariableName(const Flag& flag) {
  return absl::StrCat("KVCOMPRESS_", absl::AsciiStrToUpper(absl::StrReplaceAll(
                                         flag.name, {{"-", "_"}})));
}

}  // namespace kvcompress
