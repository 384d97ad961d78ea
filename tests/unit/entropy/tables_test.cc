// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/tables.h"

#include <gtest/gtest.h>

#include <string>

#include "digest/digest.h"

namespace kvcompress::coding {
namespace {

TEST(Tables, AreThoseOfTheFormat) {
  const auto digest = [](size_t first) {
    std::string bytes;
    for (size_t table = first; table < first + kTables; ++table) {
      for (const uint16_t frequency : HalfFrequencies(table)) {
        bytes.append(reinterpret_cast<const char*>(&frequency), 2);
      }
    }
    Digest digest;
    digest.Update(bytes);
    return digest.Hex();
  };
  EXPECT_EQ(digest(0), "4d0c5d821b5af71008e5ac7f156359fa");
  EXPECT_EQ(digest(kTables),
            "4dd1d477ddec40d99e1b4dbb3dd7f2fe");  // of klt
}

}  // namespace
}  // namespace kvcompress::coding
