// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Text in columns, and numbers as people read them.

#ifndef KVCOMPRESS_CLIENT_CLI_COLUMNS_H_
#define KVCOMPRESS_CLIENT_CLI_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvcompress::cli {

// Rows whose cells are padded to the widest of their column, with two spaces
// between columns and none at the end of a line. Widths are counted in
// characters of UTF-8.
class Columns {
 public:
  enum class Side { kLeft, kRight };

  // One side for each column.
  explicit Columns(std::vector<Side> sides) : sides_(std::move(sides)) {}

  // A row may have fewer cells than there are columns. REQUIRES: not more.
  void AddRow(std::vector<std::string> cells);

  std::string ToString() const;

 private:
  std::vector<Side> sides_;
  std::vector<std::vector<std::string>> rows_;
};

// "596.0 kB": powers of 1000, one digit after the point, whole below 1000.
std::string SizeText(uint64_t bytes);

// "3.71x".
std::string RatioText(double ratio);

// "ecsq:contract for 52 tensors, lossless for 8": the codecs with the most
// tensors, and the sum of what others have. Names are printed as they are.
std::string CodecCountsText(const std::map<std::string, uint64_t>& tensors);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_COLUMNS_H_
