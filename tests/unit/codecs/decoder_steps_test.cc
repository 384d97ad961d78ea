// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decoders give what they decode in steps that are bounded, whatever the codec,
// the byte compressor and the expansion; and the steps do not matter.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "codecs/decoder_cases.h"
#include "kvcompress/codec.h"
#include "support/decoding.h"

namespace kvcompress::decoder_cases {
namespace {

// Blocks that are each larger than the one before.
TensorSpec Noise() { return Spec({1, 1, 3000, 64}); }

std::string NoiseSource() {
  std::string bytes(*ElementCount(Noise()) * sizeof(float), '\0');
  uint32_t state = 1;
  for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    state = state * 1664525 + 1013904223;
    const uint32_t shift = i < 120000 ? 20 - i / 6000 : 0;
    const float value =
        static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    const uint32_t bits = std::bit_cast<uint32_t>(value) >> shift << shift;
    std::memcpy(&bytes[i * sizeof(bits)], &bits, sizeof(bits));
  }
  return bytes;
}

class DecoderSteps : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { codec_ = *ParseCodec(GetParam()); }

  DecoderBounds Bounds(const TensorSpec& spec) const {
    return *codec_.codec->BoundsOfDecoder(spec, codec_.parameters);
  }

  CodecSpec codec_;
};

// Else klt would not be asked to hold anything.
TEST(DecoderStepsOfKlt, AreThoseOfItsOwnMode) {
  for (const bool zeros : {true, false}) {
    const TensorSpec spec = zeros ? Zeros() : Waves();
    EXPECT_EQ(Encode(*ParseCodec("klt"), spec, Source(spec, zeros))[0], 2);
  }
}

TEST_P(DecoderSteps, GiveTheSameBytesAndNoMoreThanAsked) {
  for (const bool zeros : {true, false}) {
    const TensorSpec spec = zeros ? Zeros() : Waves();
    const std::string payload = Encode(codec_, spec, Source(spec, zeros));
    const Outcome whole = Decode(codec_, spec, payload);
    ASSERT_EQ(whole.status, absl::OkStatus());
    ASSERT_EQ(whole.decoded.size(), *ElementCount(spec) * sizeof(float));
    const DecoderBounds bounds = Bounds(spec);
    EXPECT_LE(bounds.block, kMaxDecodedBlock);
    for (const size_t most : {1, 1000, 64 << 10, 1 << 20}) {
      if (zeros && most == 1) continue;  // two million steps
      for (const size_t chunk : {size_t{999}, payload.size()}) {
        const Outcome steps =
            Decode(codec_, spec, payload, {.chunk = chunk, .most = most});
        ASSERT_EQ(steps.status, absl::OkStatus());
        EXPECT_TRUE(steps.decoded == whole.decoded) << most;
        EXPECT_LE(steps.largest, std::max(most, bounds.block)) << most;
      }
    }
  }
}

// What is in `*decoded` already counts, and is left alone.
TEST_P(DecoderSteps, FillWhatIsPartlyFull) {
  const TensorSpec spec = Waves();
  const std::string payload = Encode(codec_, spec, Source(spec, false));
  const Outcome whole = Decode(codec_, spec, payload);
  const std::string before(50000, 'x');
  const size_t most = 100000;
  auto decoder = *codec_.codec->NewDecoder(spec, codec_.parameters);
  std::string decoded;
  absl::string_view left = payload;
  for (bool more = true; more;) {
    std::string output = before;
    const absl::StatusOr<bool> step = decoder->Decode(&left, most, &output);
    ASSERT_TRUE(step.ok()) << step.status();
    more = *step;
    EXPECT_LE(output.size(), most);
    EXPECT_EQ(output.substr(0, before.size()), before);
    decoded += output.substr(before.size());
    if (more && output.size() == before.size()) {
      // A block that is larger than what is free comes where nothing is.
      output.clear();
      ASSERT_TRUE(decoder->Decode(&left, most, &output).ok());
      EXPECT_LE(output.size(), std::max<size_t>(most, Bounds(spec).block));
      decoded += output;
    }
  }
  EXPECT_EQ(decoder->Finish(), absl::OkStatus());
  EXPECT_TRUE(decoded == whole.decoded);
}

TEST_P(DecoderSteps, DoNotMatterToWhatIsDamaged) {
  const TensorSpec spec = Waves();
  const std::string payload = Encode(codec_, spec, Source(spec, false));
  std::vector<std::string> damaged;
  for (size_t part = 0; part < 16; ++part) {
    std::string flipped = payload;
    flipped[part * payload.size() / 16] ^= 0x55;
    damaged.push_back(std::move(flipped));
  }
  const size_t flips = damaged.size();
  damaged.push_back(payload.substr(0, payload.size() - 1));
  damaged.push_back(payload.substr(0, payload.size() / 2));
  damaged.push_back(payload + '\0');
  damaged.push_back(payload + payload);
  for (size_t i = 0; i < damaged.size(); ++i) {
    const Outcome whole = Decode(codec_, spec, damaged[i]);
    EXPECT_TRUE(whole.status.ok() || absl::IsDataLoss(whole.status));
    if (i >= flips) {
      EXPECT_FALSE(whole.status.ok()) << i;
    }
    for (const size_t most : {1000, 1 << 20}) {
      const Outcome steps =
          Decode(codec_, spec, damaged[i], {.chunk = 777, .most = most});
      EXPECT_EQ(steps.status, whole.status) << i;
      EXPECT_LE(steps.decoded.size(), *ElementCount(spec) * sizeof(float));
      if (whole.status.ok()) {
        EXPECT_TRUE(steps.decoded == whole.decoded);
      }
    }
  }
}

// Bytes of this process that are in use, as the C library counts them; under
// sanitizers, which have an allocator of their own, always the same.
size_t InUse() {
  const struct mallinfo2 all = mallinfo2();
  return all.uordblks + all.hblkhd;
}

TEST_P(DecoderSteps, HoldNoMoreThanTheirBound) {
  // Itself, and its vectors of a few entries.
  constexpr size_t kDecoder = 16 << 10;
  for (const bool zeros : {true, false}) {
    const TensorSpec spec = zeros ? Zeros() : Noise();
    const std::string payload =
        Encode(codec_, spec, zeros ? Source(spec, true) : NoiseSource());
    const size_t most = 16 << 10;
    std::string decoded;
    decoded.reserve(std::max<size_t>(most, Bounds(spec).block));
    absl::string_view left = payload;
    size_t largest = 0;
    const size_t before = InUse();
    auto decoder = *codec_.codec->NewDecoder(spec, codec_.parameters);
    while (!left.empty()) {
      absl::string_view part = left.substr(0, 5000);
      left.remove_prefix(part.size());
      for (bool more = true; more; decoded.clear()) {
        const absl::StatusOr<bool> step =
            decoder->Decode(&part, most, &decoded);
        ASSERT_TRUE(step.ok()) << step.status();
        more = *step;
        largest = std::max(largest, InUse() - std::min(InUse(), before));
      }
    }
    EXPECT_LE(largest, Bounds(spec).memory + kDecoder) << zeros;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, DecoderSteps, ::testing::ValuesIn(Codecs()),
                         NameOf);

// A byte compressor's chunks may hold more than the blocks of a tensor need. A
// decoder once took what follows the last block for blocks of no bytes, without
// an end.
TEST(DecoderStepsOfAChunk, EndAtTheLastBlock) {
  const TensorSpec spec = Spec({64});
  for (const char* name : {"int4", "int8", "sparse", "int4-kivi", "ecsq"}) {
    const CodecSpec inner = *ParseCodec(name);
    std::string content =
        Encode(inner, spec, Source(Zeros(), true).substr(0, 256));
    if (absl::string_view(name) == "ecsq") {
      content.assign(1 + 64 + 2, '\0');  // integers
    }
    for (const size_t more : {1, 100, 100000}) {
      const std::string body = content + std::string(more, '\0');
      const auto size = static_cast<uint32_t>(body.size());
      std::string payload(8, '\0');
      std::memcpy(&payload[0], &size, sizeof(size));
      std::memcpy(&payload[4], &size, sizeof(size));
      payload += body;
      const CodecSpec codec = *ParseCodec(CodecString(name, "", "lz4"));
      const Outcome outcome = Decode(codec, spec, payload);
      EXPECT_TRUE(absl::IsDataLoss(outcome.status)) << name;
      EXPECT_LE(outcome.decoded.size(), 256) << name;
    }
  }
}

// No shape makes a larger block, or a bound that wraps around.
TEST(DecoderBoundsOfShapes, AreBounded) {
  constexpr uint64_t kMany = uint64_t{1} << 40;
  for (const Codec* codec : AllCodecs()) {
    if (!codec->stored()) continue;
    const CodecSpec spec = *ParseCodec(codec->traits().name);
    for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{},
                                               {0},
                                               {1},
                                               {7},
                                               {kMany},
                                               {1, 0, 5, 8},
                                               {1, 1, 1, kMany},
                                               {1, 1, kMany, 1},
                                               {1, kMany, 1, 1},
                                               {kMany, 1, 1, 1},
                                               {1, 8, 1024, 256},
                                               {1, 8, 100000, 128},
                                               {1, 1, 64, 4096},
                                               {1, 3, 1023, 257},
                                               {5, 1024},
                                               {1, 1, 4096, 1024}}) {
      for (const DType dtype : codec->traits().dtypes) {
        TensorSpec tensor = Spec(shape);
        tensor.dtype = dtype;
        const absl::StatusOr<DecoderBounds> bounds =
            codec->BoundsOfDecoder(tensor, spec.parameters);
        ASSERT_TRUE(bounds.ok()) << bounds.status();
        const uint64_t size = *ElementCount(tensor) * DTypeSize(dtype);
        EXPECT_LE(bounds->block, std::min(size, kMaxDecodedBlock));
        const uint64_t held = codec->decoder_holds_tensor() ? size : 0;
        EXPECT_LE(bounds->memory, held + (24 << 20)) << codec->traits().name;
      }
    }
  }
}

}  // namespace
}  // namespace kvcompress::decoder_cases
