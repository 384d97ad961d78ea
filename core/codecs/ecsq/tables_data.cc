// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The frequencies of core/FORMAT.md, "ecsq", as data: never change them. Row i
// holds f[0], f[1], ... of table i.

#include "codecs/ecsq/tables.h"

namespace kvcompress::ecsq {
namespace {

constexpr uint16_t kFrequencies[] = {
    2045, 1,    2045, 1,    2045, 1,    2045, 1,   2043, 2,   2033, 7,    2005,
    21,   1945, 51,   1849, 99,   1715, 165,  1,   1559, 243, 1,    1389, 324,
    5,    1219, 399,  14,   1,    1059, 456,  37,  1,    911, 487,  76,   4,
    1,    777,  493,  126,  14,   1,    1,    663, 475,  176, 35,   4,    1,
    1,    561,  442,  216,  67,   14,   2,    1,   1,    475, 399,  240,  103,
    32,   8,    2,    1,    1,    401,  355,  246, 134,  58,  20,   6,    2,
    1,    1,    339,  310,  239,  155,  85,   39,  16,   6,   2,    1,    1,
    285,  268,  222,  164,  107,  62,   32,   15,  6,    2,   1,    1,    1,
    241,  229,  201,  162,  119,  81,   50,   29,  15,   8,   4,    2,    1,
    1,    1,    203,  196,  178,  153,  123,  93,  67,   45,  28,   17,   10,
    5,    3,    1,    1,    1,    1,    171,  166, 156,  139, 120,  98,   77,
    58,   42,   29,   19,   12,   8,    5,    3,   2,    1,   1,    1,    1,
    144,  140,  134,  124,  111,  97,   82,   67,  53,   41,  31,   22,   16,
    11,   7,    5,    3,    2,    1,    1,    1,   1,    1,   120,  119,  115,
    109,  101,  91,   81,   70,   60,   49,   40,  32,   25,  19,   14,   10,
    8,    5,    4,    3,    2,    1,    1,    1,   1,    1,   1,    102,  100,
    98,   94,   89,   83,   76,   69,   62,   54,  47,   40,  33,   27,   22,
    18,   14,   11,   8,    6,    5,    4,    3,   2,    1,   1,    1,    1,
    1,    1,    1,
};

constexpr uint8_t kLargest[kTables] = {1,  1,  1,  1,  1,  1,  1,  1, 1, 2,
                                       2,  2,  3,  3,  4,  5,  6,  7, 8, 9,
                                       10, 12, 14, 16, 19, 22, 26, 30};

}  // namespace

absl::Span<const uint16_t> HalfFrequencies(size_t table) {
  size_t first = 0;
  for (size_t i = 0; i < table; ++i) first += kLargest[i] + size_t{1};
  return absl::MakeConstSpan(kFrequencies).subspan(first, kLargest[table] + 1);
}

}  // namespace kvcompress::ecsq
