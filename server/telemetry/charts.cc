// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/charts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "telemetry/html.h"

namespace kvcompress {
namespace {

// Of both charts, in the units of their drawings.
constexpr double kWidth = 400;
// Columns.
constexpr double kLeft = 80, kTop = 8, kPlotHeight = 104;
// Bars.
constexpr double kNameWidth = 116, kBarWidth = 170, kRow = 25, kThickness = 15;

std::string Rectangle(absl::string_view kind, double x, double y, double width,
                      double height) {
  return absl::StrFormat(
      "<rect class=%s x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
      kind, x, y, width, height);
}

std::string Text(double x, double y, absl::string_view anchor,
                 absl::string_view kind, absl::string_view text) {
  return absl::StrFormat(
      "<text x=\"%.0f\" y=\"%.1f\" text-anchor=%s class=%s>%s</text>", x, y,
      anchor, kind, EscapeHtml(text));
}

// A square of a colour, and what it is.
std::string Key(absl::string_view kind, absl::string_view text) {
  if (text.empty()) return "";
  return absl::StrCat("<span class=", kind, ">&#9632;</span> ",
                      EscapeHtml(text), " ");
}

std::string Figure(absl::string_view title, const Caption& caption,
                   double height, absl::string_view drawing) {
  return absl::StrFormat(
      "<figure><figcaption><strong>%s</strong><br/><span "
      "class=muted>%s%s%s</span>"
      "</figcaption>\n<svg viewBox=\"0 0 %.0f %.0f\" role=img "
      "aria-label=\"%s\">%s</svg></figure>\n",
      EscapeHtml(title), Key("good", caption.good), Key("bad", caption.bad),
      EscapeHtml(caption.text), kWidth, height, EscapeHtml(title), drawing);
}

// What is there is seen, however little it is.
double Length(double value, double whole, double length) {
  if (value <= 0) return 0;
  return std::clamp(value / whole * length, 1.5, length);
}

}  // namespace

double RoundScale(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1, 2, 5}) {
    if (value <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string Draw(const ColumnChart& chart) {
  std::string drawing;
  const double bottom = kTop + kPlotHeight;
  const std::pair<double, absl::string_view> rules[] = {
      {kTop, chart.top_label},
      {kTop + kPlotHeight / 2, chart.half_label},
      {bottom, "0"}};
  for (const auto& [y, label] : rules) {
    absl::StrAppend(&drawing,
                    absl::StrFormat("<path class=rule d=\"M%.0f %.1fH%.0f\"/>",
                                    kLeft, y, kWidth),
                    Text(kLeft - 6, y + 4, "end", "axis", label));
  }
  const double step =
      (kWidth - kLeft) / static_cast<double>(chart.columns.size());
  double x = kLeft;
  for (const Column& column : chart.columns) {
    const double good = Length(column.good, chart.top, kPlotHeight);
    const double bad = std::min(Length(column.bad, chart.top, kPlotHeight),
                                kPlotHeight - good);
    if (good > 0) {
      drawing += Rectangle("good", x, bottom - good, step * 0.8, good);
    }
    if (bad > 0) {
      drawing += Rectangle("bad", x, bottom - good - bad, step * 0.8, bad);
    }
    x += step;
  }
  absl::StrAppend(&drawing,
                  Text(kLeft, bottom + 18, "start", "axis", chart.span),
                  Text(kWidth, bottom + 18, "end", "axis", "now"));
  return Figure(chart.title, chart.caption, bottom + 24, drawing);
}

std::string Draw(const BarChart& chart) {
  std::string drawing;
  double whole = 0;
  for (const BarChart::Bar& bar : chart.bars) {
    whole = std::max(whole, bar.value.good + bar.value.bad);
  }
  double y = 2;
  for (const BarChart::Bar& bar : chart.bars) {
    const double good = Length(bar.value.good, whole, kBarWidth);
    const double bad = Length(bar.value.bad, whole, kBarWidth);
    const double left = kNameWidth + 8;
    absl::StrAppend(
        &drawing, Text(kNameWidth, y + 12, "end", "name", bar.name),
        Rectangle("good", left, y, good, kThickness),
        Rectangle("bad", left + good, y, bad, kThickness),
        Text(left + good + bad + 6, y + 12, "start", "name", bar.label));
    y += kRow;
  }
  return Figure(chart.title, chart.caption, y, drawing);
}

}  // namespace kvcompress
