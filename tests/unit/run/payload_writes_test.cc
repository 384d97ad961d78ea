// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Payloads that a compressor writes. That they are the bytes which it returns
// otherwise is what every test says that compresses: see support/placed.h.

#include "run/payload_writes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "kvcompress/compressor.h"
#include "kvcompress/threads.h"
#include "support/lent.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using testing::Lent;
using testing::MakeFile;
using testing::NamedTensor;
using testing::RandomTensor;

// Takes so many bytes, and then is full.
class SmallDisk final : public PlacedSink {
 public:
  explicit SmallDisk(uint64_t size) : size_(size) {}

  absl::Status Write(uint64_t, absl::string_view bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    sizes_.push_back(bytes.size());
    written_ += bytes.size();
    if (written_ > size_) return absl::ResourceExhaustedError("disk full");
    return absl::OkStatus();
  }

  // What the calls were given, in bytes.
  const std::vector<uint64_t>& sizes() const { return sizes_; }
  uint64_t written() const { return written_; }

 private:
  const uint64_t size_;
  std::mutex mutex_;
  std::vector<uint64_t> sizes_;
  uint64_t written_ = 0;
};

// Two large tensors between many small ones.
std::string Cache() {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back(RandomTensor("a" + std::to_string(1000 + i), DType::kBF16,
                                   {1, 2, 64, 64}));
  }
  tensors.push_back(RandomTensor("b", DType::kF32, {1, 2, 9000, 64}));
  tensors.push_back(RandomTensor("c", DType::kF32, {1, 2, 9000, 64}));
  return MakeFile(tensors);
}

// The status of the first call that fails, or of the end.
absl::Status CompressTo(PlacedSink* sink, const std::string& file,
                        const std::string& codec, const Threads& threads) {
  const MemorySource source(file);
  CompressOptions options;
  options.codec = codec;
  Compressor compressor(options, {.threads = threads});
  compressor.WriteTo(sink);
  CompressOutput output;
  for (bool more = true; more;) {
    const absl::StatusOr<bool> step =
        compressor.AppendFrom(source, absl::Milliseconds(1), &output);
    if (!step.ok()) return step.status();
    EXPECT_TRUE(output.artefact.empty());
    more = *step;
  }
  return compressor.Finish().status();
}

class PayloadsWritten : public ::testing::TestWithParam<unsigned> {
 protected:
  Threads threads() { return GetParam() == 1 ? Threads() : lent_.Give(4); }

 private:
  Lent lent_{4};
};

TEST_P(PayloadsWritten, EndWithTheErrorOfTheSink) {
  const std::string file = Cache();
  for (const char* codec : {"int4", "lossless", "klt"}) {
    SmallDisk disk(600 << 10);
    const absl::Status status = CompressTo(&disk, file, codec, threads());
    EXPECT_EQ(status, absl::ResourceExhaustedError("disk full")) << codec;
  }
}

TEST_P(PayloadsWritten, AreFew) {
  const std::string file = Cache();
  for (const char* codec : {"int4", "int8", "lossless"}) {
    SmallDisk disk(file.size() * 2);
    ASSERT_TRUE(CompressTo(&disk, file, codec, threads()).ok()) << codec;
    // All but the last are of 512 KiB or more.
    EXPECT_LE(disk.sizes().size(), disk.written() / (512 << 10) + 1) << codec;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, PayloadsWritten, ::testing::Values(1U, 4U));

}  // namespace
}  // namespace kvcompress
