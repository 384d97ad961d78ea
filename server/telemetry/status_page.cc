// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/status_page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "kvcompress/codec.h"
#include "kvcompress/version.h"

namespace kvcompress {
namespace {

constexpr char kStyle[] =
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:75em}"
    "table{border-collapse:collapse;margin-bottom:2em}"
    "th,td{border:1px solid #bbb;padding:.2em .7em;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "th{background:#eee}h2{margin:.5em 0}";

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

// Cells of a row; those from the second on are numbers where `numbers`.
std::string Row(absl::Span<const std::string> cells, bool numbers) {
  std::string row = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppend(&row, numbers && i > 0 ? "<td class=n>" : "<td>",
                    Escape(cells[i]), "</td>");
  }
  return absl::StrCat(row, "</tr>\n");
}

std::string Head(absl::string_view title,
                 absl::Span<const absl::string_view> cells) {
  std::string head = absl::StrCat("<h2>", Escape(title), "</h2>\n<table><tr>");
  for (const absl::string_view cell : cells) {
    absl::StrAppend(&head, "<th>", Escape(cell), "</th>");
  }
  return absl::StrCat(head, "</tr>\n");
}

std::string ShowBytes(double bytes) {
  if (bytes < 1 << 20) return absl::StrFormat("%.1f KiB", bytes / 1024);
  if (bytes < 1 << 30) return absl::StrFormat("%.1f MiB", bytes / (1 << 20));
  return absl::StrFormat("%.2f GiB", bytes / (1 << 30));
}

std::string ShowTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

// A quotient, or a dash where there is none.
std::string Mean(double sum, uint64_t count, const char* unit) {
  if (count == 0) return "-";
  return absl::StrFormat("%.3g%s", sum / static_cast<double>(count), unit);
}

}  // namespace

StatusPage::StatusPage() : start_(absl::Now()) {
  for (const Codec* codec : AllCodecs()) {
    codecs_.push_back({.name = codec->traits().name});
  }
}

void StatusPage::SetFact(absl::string_view name, absl::string_view value) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(facts_.begin(), facts_.end(),
                   [&](const auto& fact) { return fact.first == name; });
  if (found == facts_.end()) {
    facts_.emplace_back(name, value);
  } else {
    found->second = std::string(value);
  }
}

void StatusPage::CallStarted(Method method) {
  const std::lock_guard lock(mutex_);
  ++methods_[static_cast<size_t>(method)].started;
}

void StatusPage::CallHandled(const CallEnd& end) {
  const std::lock_guard lock(mutex_);
  PerMethod& method = methods_[static_cast<size_t>(end.method)];
  method.seconds += end.seconds;
  if (end.code == absl::StatusCode::kOk) {
    ++method.ok;
    return;
  }
  ++method.failed;
  errors_.emplace_front(absl::Now(), end);
  if (errors_.size() > kErrors) errors_.pop_back();
}

void StatusPage::BytesReceived(Method method, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  methods_[static_cast<size_t>(method)].received += bytes;
}

void StatusPage::BytesSent(Method method, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  methods_[static_cast<size_t>(method)].sent += bytes;
}

void StatusPage::InFlightBytes(int64_t delta) {
  const std::lock_guard lock(mutex_);
  inflight_bytes_ += delta;
}

void StatusPage::Compressed(const CompressReport& report) {
  // "int4" of "int4+zstd:64".
  const absl::string_view name =
      absl::string_view(report.codec)
          .substr(0, report.codec.find_first_of("+:"));
  const std::lock_guard lock(mutex_);
  for (PerCodec& codec : codecs_) {
    if (codec.name != name) continue;
    ++codec.caches;
    codec.elements += report.elements;
    codec.compressed += report.compressed_size;
    if (const auto snr = report.metrics.snr_db) {
      codec.worst_snr_db =
          codec.any_snr ? std::min(codec.worst_snr_db, *snr) : *snr;
      codec.any_snr = true;
    }
  }
}

std::string StatusPage::Render(bool serving, absl::Time now) const {
  const std::lock_guard lock(mutex_);
  std::string page = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>"
      "<title>kv-compressd</title><style>",
      kStyle, "</style></head>\n<body><h1>kv-compressd: ",
      serving ? "SERVING" : "NOT_SERVING", "</h1>\n<p>", ShowTime(now),
      "; reload for newer figures. For machines: <a href=/metrics>/metrics</a>"
      ", <a href=/healthz>/healthz</a>.</p>\n");

  absl::StrAppend(&page, Head("Server", {"", ""}));
  absl::StrAppend(
      &page,
      Row({"version", absl::StrCat(kVersion, ", API ", kApiVersion,
                                   ", artefact format ", kFormatVersion)},
          false),
      Row({"started", ShowTime(start_)}, false),
      Row({"uptime",
           absl::FormatDuration(absl::Trunc(now - start_, absl::Seconds(1)))},
          false),
      Row({"memory reserved by streams",
           ShowBytes(static_cast<double>(inflight_bytes_))},
          false));
  for (const auto& [name, value] : facts_) {
    absl::StrAppend(&page, Row({name, value}, false));
  }

  absl::StrAppend(&page, "</table>\n",
                  Head("Calls", {"method", "running", "OK", "failed",
                                 "mean time", "received", "sent"}));
  for (size_t i = 0; i < methods_.size(); ++i) {
    const PerMethod& method = methods_[i];
    const uint64_t ended = method.ok + method.failed;
    absl::StrAppend(
        &page,
        Row({std::string(MethodName(static_cast<Method>(i))),
             absl::StrCat(method.started - ended), absl::StrCat(method.ok),
             absl::StrCat(method.failed), Mean(method.seconds, ended, " s"),
             ShowBytes(static_cast<double>(method.received)),
             ShowBytes(static_cast<double>(method.sent))},
            true));
  }

  absl::StrAppend(&page, "</table>\n",
                  Head("Codecs", {"codec", "caches", "ratio to 16 bits",
                                  "bits per value", "lowest SNR of a cache"}));
  for (const PerCodec& codec : codecs_) {
    absl::StrAppend(
        &page,
        Row({std::string(codec.name), absl::StrCat(codec.caches),
             Mean(2 * static_cast<double>(codec.elements), codec.compressed,
                  "x"),
             Mean(8 * static_cast<double>(codec.compressed), codec.elements,
                  ""),
             codec.any_snr ? absl::StrFormat("%.1f dB", codec.worst_snr_db)
                           : "-"},
            true));
  }

  absl::StrAppend(&page, "</table>\n",
                  Head(absl::StrCat("Last errors, at most ", kErrors),
                       {"time", "method", "code", "reason", "after", "request",
                        "traceparent"}));
  for (const auto& [time, end] : errors_) {
    absl::StrAppend(&page,
                    Row({ShowTime(time), std::string(MethodName(end.method)),
                         absl::StatusCodeToString(end.code), end.reason,
                         absl::StrFormat("%.3f s", end.seconds),
                         end.names.request_id, end.names.traceparent},
                        false));
  }
  return absl::StrCat(page, "</table></body></html>\n");
}

}  // namespace kvcompress
