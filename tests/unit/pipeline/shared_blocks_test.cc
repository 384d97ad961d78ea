// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Several threads share the blocks of one tensor: what they make does not show
// it.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "support/lent_threads.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::CompressWith;
using testing::DecompressFile;
using testing::Lent;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomBytes;
using testing::RestoreWith;
using testing::Witness;

// A tensor of several blocks, whose channels have something in common.
NamedTensor LargeTensor(const char* name, std::vector<uint64_t> shape) {
  TensorSpec spec{.name = name, .dtype = DType::kBF16, .shape = shape};
  const uint64_t count = *ElementCount(spec);
  std::string bytes = RandomBytes(DType::kBF16, count, 7);
  const size_t row = shape[3] * 2;
  // Tokens after the first half are those of it, so that there are components.
  for (size_t i = bytes.size() / 2; i < bytes.size(); i += row) {
    bytes.replace(i, row, bytes, i % (64 * row), row);
  }
  return {std::move(spec), std::move(bytes)};
}

TEST(SharedBlocksTest, ShareTheBlocksOfOneTensor) {
  const std::string file =
      MakeFile({LargeTensor("layer_0_key", {1, 4, 3000, 64})});
  for (const char* codec : {"klt:ultra", "ecsq:high"}) {
    SCOPED_TRACE(codec);
    Witness encoding;
    Witness decoding;
    Lent lent(2);
    Compressor compressor({.codec = codec},
                          {.still_wanted = [&] { return encoding.Look(); },
                           .threads = encoding.Give(&lent, 3)});
    CompressOutput output;
    ASSERT_TRUE(compressor.Append(file, &output).ok());
    EXPECT_EQ(compressor.threads(), 3);
    ASSERT_TRUE(compressor.Finish().ok());
    EXPECT_GT(encoding.seen(), 1);

    const std::string artefact = compressor.header() + output.artefact;
    DecompressLimits limits;
    limits.still_wanted = [&] { return decoding.Look(); };
    limits.threads = decoding.Give(&lent, 3);
    // A range of all tokens is no other work than none.
    DecompressOptions all, some;
    all.tokens = {0, 3000};
    some.tokens = {0, 2999};
    std::vector<std::string> restored;
    for (const auto& [options, threads] :
         {std::pair(DecompressOptions(), 3u), {all, 3u}, {some, 1u}}) {
      Decompressor decompressor(options, limits);
      absl::string_view bytes = artefact;
      restored.emplace_back();
      for (bool more = true; more;) {
        std::string part;
        const auto step = decompressor.Restore(&bytes, 1 << 20, &part);
        ASSERT_TRUE(step.ok()) << step.status();
        restored.back() += part;
        more = *step || !bytes.empty();
      }
      EXPECT_EQ(decompressor.threads(), threads);
      EXPECT_TRUE(decompressor.Finish().ok());
    }
    EXPECT_EQ(restored[0], restored[1]);
    EXPECT_GT(decoding.seen(), 1);
  }
}

TEST(SharedBlocksTest, BlocksOfOneTensorAreTheSameByAnyNumber) {
  Lent lent(7);
  for (const char* name : {"layer_0_key", "layer_0_value"}) {
    const std::string file = MakeFile({LargeTensor(name, {1, 4, 3000, 64})});
    for (const char* codec :
         {"klt:contract", "klt:ultra", "ecsq:contract", "ecsq:high", "auto"}) {
      SCOPED_TRACE(absl::StrCat(name, " ", codec));
      const CompressOptions options = {.codec = codec, .reconstruct = true};
      const auto alone = CompressWith(file, options, {}, file.size());
      ASSERT_TRUE(alone.ok()) << alone.status();
      for (const unsigned count : {2u, 3u, 8u}) {
        const auto many =
            CompressWith(file, options, lent.Give(count), file.size());
        ASSERT_TRUE(many.ok()) << many.status();
        EXPECT_EQ(many->artefact, alone->artefact) << count;
        EXPECT_EQ(many->reconstructed, alone->reconstructed);
        EXPECT_EQ(many->report.metrics.token_snr_db_p1,
                  alone->report.metrics.token_snr_db_p1);
        EXPECT_EQ(*RestoreWith(alone->artefact, {}, lent.Give(count),
                               file.size(), 1 << 20),
                  alone->reconstructed);
      }
    }
  }
}

TEST(SharedBlocksTest, DamageOfABlockIsFoundAsByOne) {
  Lent lent(3);
  const std::string file =
      MakeFile({LargeTensor("layer_0_key", {1, 4, 3000, 64})});
  std::string artefact =
      CompressWith(file, {.codec = "klt:ultra"}, {}, file.size())->artefact;
  for (size_t i = artefact.size() / 50; i < artefact.size();
       i += artefact.size() / 7) {
    artefact[i] ^= 0x20;
    EXPECT_EQ(
        RestoreWith(artefact, {}, lent.Give(4), 1 << 20, 1 << 20).status(),
        DecompressFile(artefact).status())
        << i;
    artefact[i] ^= 0x20;
  }
}

}  // namespace
}  // namespace kvcompress
