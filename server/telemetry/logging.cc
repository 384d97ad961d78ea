// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/logging.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "guarded.h"
#include "telemetry/grpc_log.h"

namespace kvcompress {
namespace {

// The message as the inside of a JSON string.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string quoted =
        nlohmann::json(
            std::string(message.payload.data(), message.payload.size()))
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    line.append(quoted.data() + 1, quoted.data() + quoted.size() - 1);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

// The message with control characters as \xNN, so that none ends the line.
class TextMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    std::string escaped;
    for (const char c : message.payload) {
      if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
        absl::StrAppendFormat(&escaped, "\\x%02x",
                              static_cast<unsigned char>(c));
      } else {
        escaped.push_back(c);
      }
    }
    line.append(escaped.data(), escaped.data() + escaped.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<TextMessage>();
  }
};

thread_local const CallNames* names_of_thread = nullptr;

// The names of the call, each between what comes before and after it. They need
// no escaping: see CallNames.
class Names final : public spdlog::custom_flag_formatter {
 public:
  explicit Names(LogFormat format) : format_(format) {}

  void format(const spdlog::details::log_msg&, const std::tm&,
              spdlog::memory_buf_t& line) override {
    if (names_of_thread == nullptr) return;
    Append("request_id", names_of_thread->request_id, &line);
    Append("traceparent", names_of_thread->traceparent, &line);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<Names>(format_);
  }

 private:
  void Append(absl::string_view name, absl::string_view value,
              spdlog::memory_buf_t* line) const {
    if (value.empty()) return;
    const std::string text =
        format_ == LogFormat::kJson
            ? absl::StrCat(",\"", name, "\":\"", value, "\"")
            : absl::StrCat(" ", name, "=", value);
    line->append(text.data(), text.data() + text.size());
  }

  const LogFormat format_;
};

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// A line of a library, which may write it when there is no memory left.
void LogFromLibrary(const char* library, LineLimit* limit,
                    spdlog::level::level_enum level, const char* message,
                    const char* file, int line) {
  Attempt([&] {
    uint64_t dropped = 0;
    if (!spdlog::should_log(level) ||
        !limit->Pass(LineLimit::Clock::now(), &dropped)) {
      return;
    }
    if (dropped > 0) {
      spdlog::warn("{}: {} lines were suppressed", library, dropped);
    }
    const char* const slash = std::strrchr(file, '/');
    spdlog::log(level, "{}: {} ({}:{})", library, message,
                slash == nullptr ? file : slash + 1, line);
  });
}

void LogFromGrpc(gpr_log_func_args* args) {
  static LineLimit limit(kMaxLibraryLines, kLibraryInterval);
  spdlog::level::level_enum level = spdlog::level::debug;
  if (args->severity == GPR_LOG_SEVERITY_ERROR) level = spdlog::level::err;
  if (args->severity == GPR_LOG_SEVERITY_INFO) level = spdlog::level::info;
  LogFromLibrary("gRPC", &limit, level, args->message, args->file, args->line);
}

void LogFromProtobuf(google::protobuf::LogLevel severity, const char* file,
                     int line, const std::string& message) {
  static LineLimit limit(kMaxLibraryLines, kLibraryInterval);
  spdlog::level::level_enum level = spdlog::level::err;
  if (severity == google::protobuf::LOGLEVEL_INFO) level = spdlog::level::info;
  if (severity == google::protobuf::LOGLEVEL_WARNING) {
    level = spdlog::level::warn;
  }
  LogFromLibrary("protobuf", &limit, level, message.c_str(), file, line);
}

}  // namespace

std::unique_ptr<spdlog::formatter> NewLogFormatter(LogFormat format) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>(
      spdlog::pattern_time_type::utc);
  formatter->add_flag<Names>('~', format);
  if (format == LogFormat::kJson) {
    formatter->add_flag<JsonMessage>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l","message":"%*"%~})");
  } else {
    formatter->add_flag<TextMessage>('*').set_pattern(
        "%Y-%m-%dT%H:%M:%S.%fZ %l %*%~");
  }
  return formatter;
}

bool LineLimit::Pass(Clock::time_point now, uint64_t* dropped) {
  const std::lock_guard lock(mutex_);
  if (begin_ == Clock::time_point::min() || now - begin_ >= interval_) {
    begin_ = now;
    passed_ = 0;
  }
  if (passed_ == most_) {
    ++dropped_;
    return false;
  }
  ++passed_;
  *dropped = std::exchange(dropped_, 0);
  return true;
}

LogNames::LogNames(const CallNames& names) { names_of_thread = &names; }

LogNames::~LogNames() { names_of_thread = nullptr; }

void SetUpLogging(LogLevel level, LogFormat format) {
  auto logger = std::make_shared<spdlog::logger>(
      "kv-compressd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(NewLogFormatter(format));
  logger->set_level(SpdlogLevel(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  RouteGrpcLog(LogFromGrpc);
  google::protobuf::SetLogHandler(LogFromProtobuf);
}

}  // namespace kvcompress
