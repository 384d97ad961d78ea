// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/status_page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "kvcompress/codec.h"
#include "kvcompress/version.h"
#include "telemetry/charts.h"
#include "telemetry/html.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kSpan = "5 minutes ago";

// Cells of a row; those from the second on are numbers where `numbers`.
std::string Row(absl::Span<const std::string> cells, bool numbers) {
  std::string row = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppend(&row, numbers && i > 0 ? "<td class=n>" : "<td>",
                    EscapeHtml(cells[i]), "</td>");
  }
  return absl::StrCat(row, "</tr>\n");
}

// Of a table; the columns from the second on are of numbers where `numbers`.
std::string Head(absl::string_view title,
                 absl::Span<const absl::string_view> cells, bool numbers) {
  std::string head = absl::StrCat("<h2>", EscapeHtml(title),
                                  "</h2>\n<div class=scroll><table><tr>");
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppend(&head, numbers && i > 0 ? "<th class=n>" : "<th>",
                    EscapeHtml(cells[i]), "</th>");
  }
  return absl::StrCat(head, "</tr>\n");
}

constexpr char kTableEnd[] = "</table></div>\n";

std::string ShowTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

// A quotient, or a dash where there is none.
std::string Mean(double sum, uint64_t count, const char* unit) {
  if (count == 0) return "-";
  return absl::StrFormat("%.3g%s", sum / static_cast<double>(count), unit);
}

}  // namespace

StatusPage::StatusPage() : start_(absl::Now()), history_(start_) {
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

void StatusPage::SetMemoryBudget(uint64_t bytes) {
  SetFact("memory budget, bytes", absl::StrCat(bytes));
  const std::lock_guard lock(mutex_);
  budget_bytes_ = bytes;
}

void StatusPage::CallStarted(Method method) {
  const std::lock_guard lock(mutex_);
  ++methods_[static_cast<size_t>(method)].started;
}

void StatusPage::CallHandled(const CallEnd& end) {
  const std::lock_guard lock(mutex_);
  PerMethod& method = methods_[static_cast<size_t>(end.method)];
  const absl::Time now = absl::Now();
  history_.Handled(now, end.code == absl::StatusCode::kOk);
  method.seconds += end.seconds;
  if (end.code == absl::StatusCode::kOk) {
    ++method.ok;
    return;
  }
  ++method.failed;
  errors_.emplace_front(now, end);
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
  history_.Reserved(absl::Now(), inflight_bytes_);
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
    if (report.tensors_failed != 0) ++codec.failed;
    codec.elements += report.elements;
    codec.compressed += report.compressed_size;
    if (const auto snr = report.metrics.snr_db) {
      codec.worst_snr_db =
          codec.any_snr ? std::min(codec.worst_snr_db, *snr) : *snr;
      codec.any_snr = true;
    }
  }
}

std::string StatusPage::CallsChart(absl::Time now) const {
  ColumnChart chart = {.title = "Calls", .span = kSpan};
  const double seconds = absl::ToDoubleSeconds(LoadHistory::kSlotLength);
  double most = 0;
  uint64_t ok = 0, failed = 0;
  for (const LoadHistory::Slot& slot : history_.Slots(now)) {
    ok += slot.ok;
    failed += slot.failed;
    chart.columns.push_back({static_cast<double>(slot.ok) / seconds,
                             static_cast<double>(slot.failed) / seconds});
    most = std::max(most, chart.columns.back().good + chart.columns.back().bad);
  }
  chart.top = RoundScale(most);
  chart.half_label = absl::StrFormat("%g/s", chart.top / 2);
  chart.top_label = absl::StrFormat("%g/s", chart.top);
  chart.caption = {absl::StrCat(ok, " OK"), absl::StrCat(failed, " failed"),
                   "in the last 5 minutes"};
  return Draw(chart);
}

std::string StatusPage::MemoryChart(absl::Time now) const {
  ColumnChart chart = {.title = "Memory reserved by streams", .span = kSpan};
  double peak = 0;
  for (const LoadHistory::Slot& slot : history_.Slots(now)) {
    chart.columns.push_back({static_cast<double>(slot.peak_bytes), 0});
    peak = std::max(peak, chart.columns.back().good);
  }
  const auto budget = static_cast<double>(budget_bytes_);
  chart.top = budget > 0 ? budget : std::max(peak, 1.0);
  chart.half_label = ShowBytes(chart.top / 2);
  chart.top_label = ShowBytes(chart.top);
  chart.caption.text = absl::StrCat("At most ", ShowBytes(peak));
  if (budget > 0) {
    absl::StrAppend(&chart.caption.text, " of the budget of ",
                    ShowBytes(budget),
                    absl::StrFormat(", %.1f %%", 100 * peak / budget));
  }
  return Draw(chart);
}

std::string StatusPage::CodecCharts() const {
  BarChart verdicts = {.title = "Caches within their thresholds"};
  BarChart ratios = {.title = "Compression ratio"};
  uint64_t caches = 0, failed = 0;
  for (const PerCodec& codec : codecs_) {
    if (codec.caches == 0 || codec.compressed == 0) continue;
    caches += codec.caches;
    failed += codec.failed;
    const uint64_t passed = codec.caches - codec.failed;
    const double ratio = 2 * static_cast<double>(codec.elements) /
                         static_cast<double>(codec.compressed);
    const std::string name(codec.name);
    verdicts.bars.push_back(
        {name,
         {static_cast<double>(passed), static_cast<double>(codec.failed)},
         absl::StrCat(passed, " of ", codec.caches)});
    ratios.bars.push_back({name, {ratio, 0}, absl::StrFormat("%.2fx", ratio)});
  }
  if (caches == 0) return "";
  verdicts.caption = {absl::StrCat(caches - failed, " passed"),
                      absl::StrCat(failed, " did not"), "since the start"};
  ratios.caption.text = "2 bytes for each value / bytes of the artefact";
  return absl::StrCat(Draw(verdicts), Draw(ratios));
}

std::string StatusPage::ServerTable(absl::Time now) const {
  std::string table = "<h2>Server</h2>\n<table class=facts>";
  absl::StrAppend(
      &table,
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
    absl::StrAppend(&table, Row({name, value}, false));
  }
  return absl::StrCat(table, "</table>\n");
}

std::string StatusPage::CallsTable() const {
  std::string table = Head(
      "Calls",
      {"method", "running", "OK", "failed", "mean time", "received", "sent"},
      true);
  for (size_t i = 0; i < methods_.size(); ++i) {
    const PerMethod& method = methods_[i];
    const uint64_t ended = method.ok + method.failed;
    absl::StrAppend(
        &table,
        Row({std::string(MethodName(static_cast<Method>(i))),
             absl::StrCat(method.started - ended), absl::StrCat(method.ok),
             absl::StrCat(method.failed), Mean(method.seconds, ended, " s"),
             ShowBytes(static_cast<double>(method.received)),
             ShowBytes(static_cast<double>(method.sent))},
            true));
  }
  return absl::StrCat(table, kTableEnd);
}

std::string StatusPage::CodecsTable() const {
  std::string table =
      Head("Codecs",
           {"codec", "caches", "ratio to 16 bits", "bits per value",
            "lowest SNR of a cache", "outside thresholds"},
           true);
  for (const PerCodec& codec : codecs_) {
    absl::StrAppend(
        &table,
        Row({std::string(codec.name), absl::StrCat(codec.caches),
             Mean(2 * static_cast<double>(codec.elements), codec.compressed,
                  "x"),
             Mean(8 * static_cast<double>(codec.compressed), codec.elements,
                  ""),
             codec.any_snr ? absl::StrFormat("%.1f dB", codec.worst_snr_db)
                           : "-",
             absl::StrCat(codec.failed)},
            true));
  }
  return absl::StrCat(table, kTableEnd);
}

std::string StatusPage::ErrorsTable() const {
  std::string table = Head(
      absl::StrCat("Last errors, at most ", kErrors),
      {"time", "method", "code", "reason", "after", "request", "traceparent"},
      false);
  for (const auto& [time, end] : errors_) {
    absl::StrAppend(&table,
                    Row({ShowTime(time), std::string(MethodName(end.method)),
                         absl::StatusCodeToString(end.code), end.reason,
                         absl::StrFormat("%.3f s", end.seconds),
                         end.names.request_id, end.names.traceparent},
                        false));
  }
  return absl::StrCat(table, kTableEnd);
}

std::string StatusPage::Render(bool serving, absl::Time now) const {
  const std::lock_guard lock(mutex_);
  return absl::StrCat(
      PageHead("kv-compressd: status"),
      "<h1>kv-compressd: ", serving ? "SERVING" : "NOT_SERVING",
      "</h1>\n<p class=muted>", ShowTime(now),
      "; reload for newer figures. Other pages: <a href=/>/</a>, "
      "<a href=/metrics>/metrics</a>, <a href=/healthz>/healthz</a>.</p>\n"
      "<div class=charts>\n",
      CallsChart(now), MemoryChart(now), CodecCharts(), "</div>\n",
      CallsTable(), CodecsTable(), ErrorsTable(), ServerTable(now), kPageEnd);
}

}  // namespace kvcompress
