// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
// More than 400 lines: one test for each group of flags, which share the ways
// to parse a command line.

#include "config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "address.h"
#include "listening_socket.h"

namespace kvcompress {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "kv-compressd");
  return ParseCommandLine(static_cast<int>(flags.size()), flags.data());
}

std::string ErrorOf(const std::vector<const char*>& flags) {
  const absl::StatusOr<CommandLine> line = Parse(flags);
  EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(line.status().message());
}

std::vector<std::string> ListenOf(const CommandLine& line) {
  std::vector<std::string> texts;
  for (const ListenAddress& address : line.options.listen) {
    texts.push_back(address.ToString());
  }
  return texts;
}

// Sets a variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);
  }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST(ConfigTest, RulesOfAccess) {
  const auto line =
      Parse({"--tls-cert=c", "--tls-key=k", "--tls-client-ca=a",
             "--allow=Compress+Measure=x,*=y", "--allow", "SelfTest=z*"});
  ASSERT_TRUE(line.ok()) << line.status();
  const AccessRules& access = line->options.access;
  const std::vector<std::string> x = {"x"}, y = {"y"}, z = {"zz"};
  EXPECT_TRUE(access.Check(Method::kMeasure, x).ok());
  EXPECT_FALSE(access.Check(Method::kSelfTest, x).ok());
  EXPECT_TRUE(access.Check(Method::kSelfTest, y).ok());
  EXPECT_TRUE(access.Check(Method::kSelfTest, z).ok());
  EXPECT_THAT(ErrorOf({"--allow=Compress"}),
              HasSubstr("--allow: \"Compress\" is not METHODS=IDENTITY"));
  EXPECT_THAT(ErrorOf({"--allow=Compress=x"}),
              HasSubstr("--allow needs --tls-client-ca"));
}

TEST(ConfigTest, PartOfAClient) {
  EXPECT_EQ(
      Parse({"--client-budget-percent=25"})->options.client_budget_percent, 25);
  for (const char* bad : {"0", "101", "-1", "1.5", "half"}) {
    EXPECT_THAT(ErrorOf({"--client-budget-percent", bad}),
                HasSubstr("is not a percentage from 1 to 100"));
  }
}

TEST(ConfigTest, ThreadsOfACall) {
  EXPECT_EQ(Parse({"--threads=3"})->options.call_threads, 3);
  for (const char* bad : {"0", "1025", "-1", "many"}) {
    EXPECT_THAT(ErrorOf({"--threads", bad}), HasSubstr("--threads"));
  }
}

TEST(ConfigTest, Defaults) {
  const absl::StatusOr<CommandLine> line = Parse({});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_FALSE(line->answer.has_value());
  EXPECT_THAT(ListenOf(*line), ElementsAre("127.0.0.1:50051"));
  EXPECT_EQ(line->options.metrics_listen->ToString(), "127.0.0.1:9464");
  EXPECT_EQ(line->options.log_level, LogLevel::kInfo);
  EXPECT_EQ(line->options.log_format, LogFormat::kText);
  EXPECT_EQ(line->options.max_header_bytes, 100'000'000);
  EXPECT_EQ(line->options.max_message_bytes, 8 << 20);
  EXPECT_EQ(line->options.drain_delay, absl::ZeroDuration());
  EXPECT_EQ(line->options.shutdown_grace, absl::Seconds(30));
}

TEST(ConfigTest, EveryFlag) {
  const absl::StatusOr<CommandLine> line =
      Parse({"--listen",
             "0.0.0.0:1",
             "--listen=[::1]:2,unix:/run/kv.sock",
             "--metrics-listen",
             "localhost:3",
             "--log-level",
             "error",
             "--log-format",
             "json",
             "--kernels",
             "portable",
             "--max-header-bytes",
             "1024",
             "--max-message-bytes",
             "65536",
             "--max-connection-age-seconds",
             "60",
             "--max-connections",
             "100",
             "--max-connections-per-host",
             "10",
             "--max-connection-idle-seconds",
             "0",
             "--unreachable-exit-seconds",
             "30",
             "--drain-delay-seconds",
             "0.5",
             "--shutdown-grace-seconds",
             "3600",
             "--insecure",
             "--unix-socket-mode",
             "0660",
             "--tls-cert",
             "c",
             "--tls-key",
             "k",
             "--tls-client-ca",
             "a",
             "--tls-reload-seconds",
             "0.1",
             "--profile-directory",
             "p",
             "--max-profile-bytes",
             "1048576",
             "--profile-reload-seconds",
             "86400"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_TRUE(line->options.insecure);
  EXPECT_EQ(line->options.unix_socket_mode, 0660);
  EXPECT_EQ(line->options.tls.certificate, "c");
  EXPECT_EQ(line->options.tls.key, "k");
  EXPECT_EQ(line->options.tls.client_ca, "a");
  EXPECT_EQ(line->options.tls_reload_interval, absl::Milliseconds(100));
  EXPECT_EQ(line->options.profile_directory, "p");
  EXPECT_EQ(line->options.max_profile_bytes, 1 << 20);
  EXPECT_EQ(line->options.profile_reload_interval, absl::Hours(24));
  EXPECT_THAT(ListenOf(*line),
              ElementsAre("0.0.0.0:1", "[::1]:2", "unix:/run/kv.sock"));
  EXPECT_EQ(line->options.metrics_listen->ToString(), "localhost:3");
  EXPECT_EQ(line->options.log_level, LogLevel::kError);
  EXPECT_EQ(line->options.log_format, LogFormat::kJson);
  EXPECT_EQ(line->options.kernels, "portable");
  EXPECT_EQ(line->options.max_header_bytes, 1024);
  EXPECT_EQ(line->options.max_message_bytes, 65536);
  EXPECT_EQ(line->options.max_connection_age, absl::Minutes(1));
  EXPECT_EQ(line->options.max_connections, 100);
  EXPECT_EQ(line->options.max_connections_per_host, 10);
  EXPECT_EQ(line->options.max_connection_idle, absl::ZeroDuration());
  EXPECT_EQ(line->options.unreachable_exit, absl::Seconds(30));
  EXPECT_EQ(line->options.drain_delay, absl::Milliseconds(500));
  EXPECT_EQ(line->options.shutdown_grace, absl::Hours(1));
}

TEST(ConfigTest, CountsOfConnections) {
  for (const char* value : {"0", "-1", "1000001", "1.5", "many", ""}) {
    EXPECT_EQ(ErrorOf({"--max-connections", value}),
              absl::StrCat("--max-connections: \"", value,
                           "\" is not a whole number from 1 to 1000000"));
  }
  EXPECT_EQ(
      Parse({"--unreachable-exit-seconds", "0"})->options.unreachable_exit,
      absl::InfiniteDuration());
}

TEST(ConfigTest, PlainTextForOtherMachinesNeedsInsecure) {
  for (const char* address : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "host:1",
                              "127.evil.example:1", "[::ffff:10.0.0.1]:1"}) {
    EXPECT_THAT(ErrorOf({"--listen", "127.0.0.1:2", "--listen", address}),
                HasSubstr(absl::StrCat("other machines can reach ", address)));
    EXPECT_TRUE(Parse({"--listen", address, "--insecure"}).ok());
    EXPECT_TRUE(
        Parse({"--listen", address, "--tls-cert", "c", "--tls-key", "k"}).ok());
    EXPECT_FALSE(Parse({"--listen", address, "--insecure=false"}).ok());
  }
  const Variable insecure("KVCOMPRESS_INSECURE", "1");
  EXPECT_TRUE(Parse({"--listen", "0.0.0.0:1"}).ok());
}

TEST(ConfigTest, FlagsOfTlsGoTogether) {
  EXPECT_THAT(ErrorOf({"--tls-cert", "c"}), HasSubstr("go together"));
  EXPECT_THAT(ErrorOf({"--tls-key", "k"}), HasSubstr("go together"));
  EXPECT_THAT(ErrorOf({"--tls-client-ca", "a"}),
              HasSubstr("--tls-client-ca needs"));
}

TEST(ConfigTest, ModesAreOctal) {
  for (const char* mode : {"", "8", "0o660", "1000", "-1", "77777777777"}) {
    EXPECT_FALSE(Parse({"--unix-socket-mode", mode}).ok()) << mode;
  }
  EXPECT_EQ(Parse({"--unix-socket-mode", "0"})->options.unix_socket_mode, 0);
}

TEST(ConfigTest, VariablesStandInForFlags) {
  const Variable listen("KVCOMPRESS_LISTEN", "127.0.0.1:1,127.0.0.1:2");
  const Variable level("KVCOMPRESS_LOG_LEVEL", "warn");
  const Variable grace("KVCOMPRESS_SHUTDOWN_GRACE_SECONDS", "7");
  const absl::StatusOr<CommandLine> line = Parse({"--log-level", "debug"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(ListenOf(*line), ElementsAre("127.0.0.1:1", "127.0.0.1:2"));
  EXPECT_EQ(line->options.log_level, LogLevel::kDebug);
  EXPECT_EQ(line->options.shutdown_grace, absl::Seconds(7));
}

TEST(ConfigTest, EmptyVariablesCountAsNotSetExceptForMetrics) {
  const Variable level("KVCOMPRESS_LOG_LEVEL", "");
  const Variable metrics("KVCOMPRESS_METRICS_LISTEN", "");
  const absl::StatusOr<CommandLine> line = Parse({});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.log_level, LogLevel::kInfo);
  EXPECT_FALSE(line->options.metrics_listen.has_value());
}

TEST(ConfigTest, EmptyMetricsAddressMeansNone) {
  for (const std::vector<const char*>& flags :
       {std::vector<const char*>{"--metrics-listen", ""},
        std::vector<const char*>{"--metrics-listen="}}) {
    const absl::StatusOr<CommandLine> line = Parse(flags);
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_FALSE(line->options.metrics_listen.has_value());
  }
}

TEST(ConfigTest, ErrorsNameTheFlagAndTheRange) {
  EXPECT_EQ(ErrorOf({"--max-message-bytes", "8MB"}),
            "--max-message-bytes: \"8MB\" is not a number of bytes from 65536 "
            "to 1073741824 (units: KiB, MiB, GiB, TiB)");
  EXPECT_EQ(ErrorOf({"--max-header-bytes", "100000001"}),
            "--max-header-bytes: \"100000001\" is not a number of bytes from "
            "1024 to 100000000 (units: KiB, MiB, GiB, TiB)");
  for (const char* seconds : {"-1", "nan", "3600.1", "inf", "1s", ""}) {
    EXPECT_THAT(ErrorOf({"--drain-delay-seconds", seconds}),
                HasSubstr("is not a number of seconds from 0 to 3600"));
  }
  EXPECT_EQ(ErrorOf({"--log-level", "loud"}),
            "--log-level: \"loud\" is not one of debug, info, warn, error");
  EXPECT_THAT(ErrorOf({"--metrics-listen", "unix:/x"}),
              HasSubstr("metrics need HOST:PORT"));
  EXPECT_THAT(ErrorOf({"--listen", "a:1", "--listen", "a:1"}),
              HasSubstr("a:1 is given twice"));
  EXPECT_THAT(ErrorOf({"--log-level", "info", "--log-level", "warn"}),
              HasSubstr("--log-level"));
  EXPECT_THAT(ErrorOf({"--no-such-flag"}), HasSubstr("--no-such-flag"));
  EXPECT_THAT(ErrorOf({"stray"}), HasSubstr("stray"));
  EXPECT_THAT(ErrorOf({"--listen"}), HasSubstr("--listen"));
  const Variable format("KVCOMPRESS_LOG_FORMAT", "xml");
  EXPECT_EQ(ErrorOf({}),
            "KVCOMPRESS_LOG_FORMAT: \"xml\" is not one of text, json");
}

TEST(ConfigTest, WhatIsDoneInPlaceOfServing) {
  EXPECT_FALSE(Parse({})->check_only);
  EXPECT_FALSE(Parse({})->probe_only);
  EXPECT_TRUE(Parse({"--check-config"})->check_only);
  EXPECT_TRUE(Parse({"--probe"})->probe_only);
}

TEST(ConfigTest, PortZeroMayBeRepeated) {
  const absl::StatusOr<CommandLine> line =
      Parse({"--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.listen.size(), 2);
}

TEST(ConfigTest, HelpListsEveryFlagAndVersionSaysThree) {
  const absl::StatusOr<CommandLine> help = Parse({"--help"});
  ASSERT_TRUE(help.ok() && help->answer.has_value());
  for (const char* flag :
       {"--listen", "--metrics-listen", "--log-level", "--log-format",
        "--max-header-bytes", "--max-message-bytes", "--drain-delay-seconds",
        "--shutdown-grace-seconds", "--version"}) {
    EXPECT_THAT(*help->answer, HasSubstr(flag));
  }
  const absl::StatusOr<CommandLine> version = Parse({"--version"});
  ASSERT_TRUE(version.ok() && version->answer.has_value());
  EXPECT_THAT(*version->answer, HasSubstr("API v1, artefact format 1"));
}

TEST(ListenAddressTest, RoundTrips) {
  for (const char* text : {"127.0.0.1:50051", "localhost:0", "[::1]:65535",
                           "unix:/run/kv.sock", "unix:relative"}) {
    const absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->ToString(), text);
    EXPECT_TRUE(address->is_local());
  }
  EXPECT_EQ(ParseListenAddress("unix:///run/kv.sock")->path, "/run/kv.sock");
  EXPECT_FALSE(ParseListenAddress("0.0.0.0:1")->is_local());
  EXPECT_FALSE(ParseListenAddress("[::]:1")->is_local());
}

TEST(ListenAddressTest, RefusesWhatIsNoAddress) {
  const std::string long_path = absl::StrCat("unix:/", std::string(107, 'x'));
  for (const std::string& text :
       {std::string(""), std::string("50051"), std::string(":50051"),
        std::string("::1:50051"), std::string("[::1]"), std::string("[a:1"),
        std::string("[a]:1"), std::string("a:65536"), std::string("a:-1"),
        std::string("a:+1"), std::string("a: 1"), std::string("a:"),
        std::string("unix:"), std::string("unix://host/path"),
        std::string("http://a:1"), std::string("a\0:1", 4), long_path}) {
    EXPECT_FALSE(ParseListenAddress(text).ok()) << text;
  }
}

class SocketFileTest : public ::testing::Test {
 protected:
  SocketFileTest() {
    char pattern[] = "/tmp/kvcompress_test_XXXXXX";
    directory_ = mkdtemp(pattern);
    path_ = directory_ + "/kv.sock";
  }
  ~SocketFileTest() override { std::filesystem::remove_all(directory_); }

  // A socket bound to the path.
  int Bind() const {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    EXPECT_EQ(
        bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        0);
    return fd;
  }

  std::string directory_;
  std::string path_;
};

TEST_F(SocketFileTest, NothingThereIsFine) {
  EXPECT_TRUE(RemoveStaleSocket(path_).ok());
}

TEST_F(SocketFileTest, StaleSocketIsRemoved) {
  close(Bind());
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(RemoveStaleSocket(path_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketFileTest, SocketInUseIsKept) {
  const int fd = Bind();
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_THAT(RemoveStaleSocket(path_).message(),
              HasSubstr("another process is listening"));
  ListenAddress address = *ParseListenAddress("unix:" + path_);
  EXPECT_EQ(ListenOn({.backlog = 1}, &address).status(),
            absl::UnavailableError("Address already in use"));
  EXPECT_TRUE(std::filesystem::exists(path_));
  close(fd);
}

TEST_F(SocketFileTest, SocketWithAFullBacklogIsKept) {
  const int fd = Bind();
  ASSERT_EQ(listen(fd, 0), 0);
  const ListenAddress address = *ParseListenAddress("unix:" + path_);
  std::vector<int> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    sockaddr_un target = {};
    target.sun_family = AF_UNIX;
    std::strcpy(target.sun_path, path_.c_str());
    connect(clients.back(), reinterpret_cast<const sockaddr*>(&target),
            sizeof(target));
  }
  EXPECT_FALSE(RemoveStaleSocket(path_).ok());
  EXPECT_TRUE(std::filesystem::exists(path_));
  for (const int client : clients) close(client);
  close(fd);
}

TEST_F(SocketFileTest, OtherFilesAreKept) {
  std::ofstream(path_) << "data";
  EXPECT_THAT(RemoveStaleSocket(path_).message(), HasSubstr("is not a socket"));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace kvcompress
