// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Pieces of a payload that is here whole are decoded apart, in any order; and
// the pieces do not matter.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "codecs/decoder_cases.h"
#include "kvcompress/codec.h"

namespace kvcompress::decoder_cases {
namespace {

// Pieces, the last of them first. Nothing where the payload is not cut.
std::optional<Outcome> DecodePieces(const CodecSpec& codec,
                                    const TensorSpec& spec,
                                    absl::string_view payload, size_t size) {
  auto decoder = *codec.codec->NewDecoder(spec, codec.parameters);
  std::vector<Outcome> pieces(decoder->Cut(payload, size));
  if (pieces.empty()) return std::nullopt;
  for (size_t i = pieces.size(); i-- > 0;) {
    pieces[i].status = decoder->DecodePiece(i, &pieces[i].decoded);
  }
  Outcome outcome;
  for (const Outcome& piece : pieces) {
    if (!piece.status.ok()) return piece;
    outcome.decoded += piece.decoded;
    outcome.largest = std::max(outcome.largest, piece.decoded.size());
  }
  return outcome;
}

class DecoderPieces : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { codec_ = *ParseCodec(GetParam()); }

  CodecSpec codec_;
};

TEST_P(DecoderPieces, AreTheSameBytes) {
  for (const bool zeros : {true, false}) {
    const TensorSpec spec = zeros ? Zeros() : Waves();
    const std::string payload = Encode(codec_, spec, Source(spec, zeros));
    const Outcome whole = Decode(codec_, spec, payload);
    const size_t block =
        codec_.codec->BoundsOfDecoder(spec, codec_.parameters)->block;
    for (const size_t size : {size_t{1}, size_t{70000}, size_t{1} << 30}) {
      const auto pieces = DecodePieces(codec_, spec, payload, size);
      if (!pieces) continue;
      EXPECT_EQ(pieces->status, absl::OkStatus());
      EXPECT_TRUE(pieces->decoded == whole.decoded);
      EXPECT_LE(pieces->largest, std::max(size, block));
    }
  }
}

TEST_P(DecoderPieces, ShowTheSameDamage) {
  const TensorSpec spec = Waves();
  std::string payload = Encode(codec_, spec, Source(spec, false));
  for (size_t part = 0; part < 64; ++part) {
    char& byte = payload[part * payload.size() / 64];
    byte ^= 0x55;
    const Outcome whole = Decode(codec_, spec, payload);
    if (const auto pieces = DecodePieces(codec_, spec, payload, 20000)) {
      EXPECT_EQ(pieces->status, whole.status);
      if (whole.status.ok()) {
        EXPECT_TRUE(pieces->decoded == whole.decoded);
      }
    }
    byte ^= 0x55;
  }
  EXPECT_FALSE(DecodePieces(codec_, spec, payload + '\0', 20000));
  payload.pop_back();
  EXPECT_FALSE(DecodePieces(codec_, spec, payload, 20000));
}

TEST(DecoderPiecesOfCodecs, AreThoseOfConsecutiveBlocks) {
  for (const char* name : {"ecsq", "ecsq:high", "int4", "int4-hadamard", "int8",
                           "int4-kivi", "sparse", "lossless"}) {
    const CodecSpec codec = *ParseCodec(name);
    EXPECT_TRUE(DecodePieces(
        codec, Waves(), Encode(codec, Waves(), Source(Waves(), false)), 20000))
        << name;
  }
  // 8-bit integers, which any finite tensor can become.
  const TensorSpec spec = Spec({20000});
  const std::string payload(1 + 20000 + 2 * 313, '\0');
  const auto integers = DecodePieces(*ParseCodec("ecsq"), spec, payload, 50000);
  ASSERT_TRUE(integers);
  EXPECT_EQ(integers->decoded, std::string(80000, '\0'));
  EXPECT_LE(integers->largest, 50000);
  // Blocks of klt are not consecutive.
  const CodecSpec klt = *ParseCodec("klt");
  EXPECT_FALSE(DecodePieces(
      klt, Waves(), Encode(klt, Waves(), Source(Waves(), false)), 20000));
}

INSTANTIATE_TEST_SUITE_P(Codecs, DecoderPieces, ::testing::ValuesIn(Codecs()),
                         NameOf);

}  // namespace
}  // namespace kvcompress::decoder_cases
