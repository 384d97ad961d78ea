// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Charts of the status page, as figures of HTML with an SVG in each. Colours
// come from the style of PageHead. Texts are escaped.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_CHARTS_H_
#define KVCOMPRESS_SERVER_TELEMETRY_CHARTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvcompress {

// A column of a chart over time: two quantities, one on top of the other.
struct Column {
  double good = 0, bad = 0;
};

// What stands below a title: what the two colours are, where a chart has both,
// and a line.
struct Caption {
  std::string good, bad;
  std::string text;
};

// Columns from the oldest to now, as a figure.
struct ColumnChart {
  absl::string_view title;
  Caption caption;
  absl::string_view span;             // how long ago the first column is
  double top = 0;                     // value at the upper edge, above 0
  std::string half_label, top_label;  // of the axis
  std::vector<Column> columns;
};
std::string Draw(const ColumnChart& chart);

// Horizontal bars with names, as a figure.
struct BarChart {
  struct Bar {
    std::string name;
    Column value;
    std::string label;
  };
  absl::string_view title;
  Caption caption;
  std::vector<Bar> bars;  // on one scale, which fits the longest
};
std::string Draw(const BarChart& chart);

// The least of 1, 2 and 5, times a power of ten, that is not below `value`; 1
// for 0.
double RoundScale(double value);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_CHARTS_H_
