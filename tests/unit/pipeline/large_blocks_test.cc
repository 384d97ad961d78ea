// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tensors whose blocks are larger than any slice of the pipeline, whole and
// damaged, by one thread and several. With two threads or more these were once
// restored without an end.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "support/lent_threads.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::Compressed;
using testing::CompressFile;
using testing::Lent;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomBytes;
using testing::RestoreWith;

// Blocks of ecsq, klt and lossless have up to 2^18 elements: 512 KiB of F16,
// and 2 MiB of F64.
NamedTensor Tensor(const char* name, DType dtype, bool laid_out) {
  NamedTensor tensor;
  tensor.spec = {.name = name, .dtype = dtype};
  tensor.spec.shape = laid_out ? std::vector<uint64_t>{1100, 1, 256}
                               : std::vector<uint64_t>{1, 1, 1100, 256};
  tensor.bytes = RandomBytes(dtype, *ElementCount(tensor.spec), 5);
  return tensor;
}

std::string File(DType dtype, bool laid_out) {
  NamedTensor positions;
  positions.spec = {
      .name = "positions", .dtype = DType::kI64, .shape = {70000}};
  positions.bytes.assign(8 * positions.spec.shape[0], '\1');
  return MakeFile({Tensor("layer_0_key", dtype, laid_out), positions,
                   Tensor("layer_0_value", dtype, laid_out)});
}

class LargeBlocks : public ::testing::TestWithParam<std::string> {
 protected:
  // By steps of so many bytes, or all at once.
  void ExpectRestored(const Compressed& compressed) {
    for (const unsigned threads : {1u, 2u, 5u}) {
      SCOPED_TRACE(threads);
      const auto restored =
          RestoreWith(compressed.artefact, {}, lent_.Give(threads),
                      compressed.artefact.size(), 4 << 20);
      ASSERT_TRUE(restored.ok()) << restored.status();
      EXPECT_TRUE(*restored == compressed.reconstructed);
    }
  }

  void ExpectDamageIsFound(std::string artefact) {
    // The payloads of both tensors of the codec: within the first and the last.
    for (const size_t part : {2, 9}) {
      std::string damaged = artefact;
      char& byte = damaged[damaged.size() * part / 10];
      byte = static_cast<char>(byte ^ 4);
      for (const unsigned threads : {1u, 2u, 5u}) {
        SCOPED_TRACE(absl::StrCat(part, " of 10, ", threads));
        const auto restored = RestoreWith(damaged, {}, lent_.Give(threads),
                                          damaged.size(), 4 << 20);
        EXPECT_TRUE(absl::IsDataLoss(restored.status())) << restored.status();
      }
    }
  }

  Lent lent_{5};
};

TEST_P(LargeBlocks, ComeBackOrAreDamaged) {
  for (const DType dtype : {DType::kF16, DType::kF64}) {
    for (const bool laid_out : {false, true}) {
      for (const char* stage : {"", "+lz4", "+zstd"}) {
        SCOPED_TRACE(absl::StrCat(DTypeName(dtype), stage, laid_out));
        CompressOptions options;
        options.codec = GetParam() + stage;
        options.layout = laid_out ? "thd" : "";
        options.reconstruct = true;
        options.effort = Effort::kFast;
        const auto compressed = CompressFile(File(dtype, laid_out), options);
        ASSERT_TRUE(compressed.ok()) << compressed.status();
        ExpectRestored(*compressed);
        ExpectDamageIsFound(compressed->artefact);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, LargeBlocks,
                         ::testing::Values("int4", "int8", "int4-hadamard",
                                           "int4-kivi", "sparse", "lossless",
                                           "ecsq", "ecsq:max", "klt:ultra",
                                           "auto"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (!absl::ascii_isalnum(c)) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace kvcompress
