// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/artefact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "container/keys.h"
#include "digest/digest.h"
#include "kvcompress/error.h"
#include "kvcompress/layout.h"
#include "kvcompress/safetensors.h"
#include "support/safetensors_file.h"

namespace kvcompress {
namespace {

using ::testing::HasSubstr;

ArtefactHeader SmallHeader() {
  ArtefactHeader header;
  header.labels = {{"model", "m@1"}, {"tenant", "t"}};
  header.metadata = {{"format", "pt"}, {"a", "ü\""}};
  ArtefactTensor tensor;
  tensor.spec = {.name = "layer_0_key",
                 .dtype = DType::kBF16,
                 .shape = {1, 1, 2, 32},
                 .role = TensorRole::kKey,
                 .layer = 0};
  tensor.codec = *ParseCodec("int4:64");
  tensor.payload_size = 34;
  tensor.digest = std::string(kDigestDigits, 'a');
  header.tensors.push_back(tensor);
  return header;
}

std::string Serialize(ArtefactHeader header) {
  return *SerializeArtefactHeader(*ReservedHeaderSize(header), &header);
}

// Puts a correct checksum over a header that was changed.
std::string Resealed(std::string raw) {
  raw.replace(kChecksumOffset, kDigestDigits, kDigestDigits, '0');
  Digest digest;
  digest.Update(raw);
  return raw.replace(kChecksumOffset, kDigestDigits, digest.Hex());
}

TEST(ArtefactHeader, ComesBack) {
  const ArtefactHeader header = SmallHeader();
  const std::string raw = Serialize(header);
  EXPECT_EQ(raw.size() % 8, 0);
  const auto parsed = ParseArtefactHeader(raw);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->format_version, 1);
  EXPECT_EQ(parsed->labels, header.labels);
  EXPECT_EQ(parsed->metadata, header.metadata);
  ASSERT_EQ(parsed->tensors.size(), 1);
  EXPECT_EQ(parsed->tensors[0].spec.name, "layer_0_key");
  EXPECT_EQ(parsed->tensors[0].spec.shape, header.tensors[0].spec.shape);
  EXPECT_EQ(parsed->tensors[0].spec.role, TensorRole::kKey);
  EXPECT_EQ(parsed->tensors[0].spec.layer, 0);
  EXPECT_EQ(parsed->tensors[0].digest, header.tensors[0].digest);
  EXPECT_EQ(parsed->checksum.substr(0, 9), "xxh3-128:");
}

TEST(ArtefactHeader, ItsSizeDoesNotDependOnTheDigests) {
  ArtefactHeader header = SmallHeader();
  const uint64_t size = *ReservedHeaderSize(header);
  header.tensors[0].digest.clear();
  EXPECT_EQ(*ReservedHeaderSize(header), size);
}

TEST(ArtefactHeader, EveryFlippedBitIsFound) {
  const std::string raw = Serialize(SmallHeader());
  // The length is for the reader: it changes what is read.
  for (size_t bit = 64; bit < raw.size() * 8; ++bit) {
    std::string flipped = raw;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_EQ(ParseArtefactHeader(flipped).status().code(),
              absl::StatusCode::kDataLoss)
        << "bit " << bit;
  }
}

TEST(ArtefactHeader, RulesHoldBehindACorrectChecksumToo) {
  const std::string raw = Serialize(SmallHeader());
  const auto change = [&](absl::string_view from, absl::string_view to) {
    std::string changed = absl::StrReplaceAll(raw, {{from, to}});
    EXPECT_NE(changed, raw) << from;
    changed.resize((changed.size() + 7) / 8 * 8, ' ');
    const uint64_t length = changed.size() - 8;
    for (size_t i = 0; i < 8; ++i) {
      changed[i] = static_cast<char>(length >> (8 * i) & 0xff);
    }
    return ParseArtefactHeader(Resealed(changed)).status();
  };
  EXPECT_EQ(change("x2x32 k0", "x2x64 k0").code(), absl::StatusCode::kDataLoss);
  const absl::Status shape = change("BF16 1x1", "BF16 01x");
  EXPECT_EQ(shape.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(shape.message(),
              HasSubstr("a bad shape: dimension 0 is not a decimal number"));
  const absl::Status role = change("32 k0 ", "32 q0 ");
  EXPECT_EQ(role.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(role.message(), HasSubstr("a bad role: it does not begin with"));
  EXPECT_THAT(change("32 k0 ", "32 kx ").message(),
              HasSubstr("a bad role: its layer is not a decimal number"));
  EXPECT_EQ(change("BF16 1x", "BF17 1x").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(change("\"bhtd\"", "\"bthd\"").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(change("aaaaaaaa", "AAAAAAAA").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(change("\"dtype\":\"U8\"", "\"dtype\":\"I8\"").code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(change("kvcompress.label.model", "kvcompress.lobel.model").code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(change("kvcompress.format\":\"1", "kvcompress.format\":\"0").code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(change("kvcompress.format\":\"1", "kvcompress.format\":\"2").code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(change("int4:64 BF", "int9:64 BF").code(),
            absl::StatusCode::kUnimplemented);
}

// Keys and values of a tensor, of 68 bytes each.
ArtefactHeader LaidOutHeader() {
  ArtefactHeader header;
  Layout layout = *Layout::Of(
      "2t(hd):h=2",
      {.name = "cache", .dtype = DType::kBF16, .shape = {2, 2, 64}});
  for (uint64_t i = 0; i < layout.views(); ++i) {
    ArtefactTensor view;
    view.spec = layout.View(i);
    view.codec = *ParseCodec("int4:64");
    view.payload_size = 68;
    view.digest = std::string(kDigestDigits, 'a');
    header.tensors.push_back(view);
  }
  header.laid_out.push_back({std::move(layout), 0});
  return header;
}

TEST(ArtefactHeader, LayoutsComeBack) {
  const ArtefactHeader header = LaidOutHeader();
  const auto parsed = ParseArtefactHeader(Serialize(header));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->laid_out.size(), 1);
  EXPECT_EQ(parsed->laid_out[0].layout.text(), "2t(hd):h=2");
  EXPECT_EQ(parsed->laid_out[0].layout.source().name, "cache");
  ASSERT_EQ(parsed->tensors.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const TensorSpec& view = parsed->tensors[i].spec;
    EXPECT_EQ(view.name, header.tensors[i].spec.name);
    EXPECT_EQ(view.role, header.tensors[i].spec.role);
    EXPECT_EQ(view.shape, header.tensors[i].spec.shape);
    EXPECT_EQ(parsed->tensors[i].payload_size, 68);
  }
}

TEST(ArtefactHeader, RulesOfLayoutsHoldBehindACorrectChecksumToo) {
  const std::string raw = Serialize(LaidOutHeader());
  const auto change = [&](absl::string_view from, absl::string_view to) {
    const std::string changed =
        Resealed(absl::StrReplaceAll(raw, {{from, to}}));
    EXPECT_NE(changed, raw) << from;
    return ParseArtefactHeader(changed).status().code();
  };
  EXPECT_EQ(change("@2t(hd)", "@2q(hd)"), absl::StatusCode::kUnimplemented);
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{
           {":h=2 BF", ":h=3 BF"},
           {":h=2 BF", ":d=2 BF"},
           {"(hd):h", "(dh):h"},
           {"@2t(hd):h=2", "@2htd      "},
           {"@2t(hd):h=2", "@bhtd      "},
           {"2x2x64", "3x2x64"},
           {" k 68 ", " k 67 "},
           {" k 68 ", " k 99 "},
           {" v 68 ", " v 08 "},
           {" v 68 ", " v 99 "},
           {" k 68 ", " q 68 "},
           {"BF16 2x2", "I32  2x2"}}) {
    EXPECT_EQ(change(from, to), absl::StatusCode::kDataLoss) << from << to;
  }
}

// The same, both coded with a profile.
ArtefactHeader LaidOutGroup() {
  ArtefactHeader header = LaidOutHeader();
  for (ArtefactTensor& view : header.tensors) {
    view.codec = *ParseManifestField("klt-profile:ultra");
  }
  header.profile = {"sha256:" + std::string(64, '0'), "model"};
  return header;
}

TEST(ArtefactHeader, NamesTheCodecOfAGroupOnce) {
  const std::string raw = Serialize(LaidOutGroup());
  EXPECT_THAT(raw, HasSubstr(" klt-profile:ultra k 68 "));
  EXPECT_THAT(raw, HasSubstr(" = v 68 "));
  const auto parsed = ParseArtefactHeader(raw);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (const ArtefactTensor& view : parsed->tensors) {
    EXPECT_EQ(view.codec.ToString(), "klt-profile:ultra");
  }
}

TEST(ArtefactHeader, NamesNoOtherCodecSo) {
  const auto change = [&](const ArtefactHeader& header, absl::string_view from,
                          absl::string_view to) {
    const std::string raw = Serialize(header);
    const std::string changed =
        Resealed(absl::StrReplaceAll(raw, {{from, to}}));
    EXPECT_NE(changed, raw) << from;
    return ParseArtefactHeader(changed).status();
  };
  for (const auto& [header, from, to] :
       std::vector<std::tuple<ArtefactHeader, const char*, const char*>>{
           {LaidOutHeader(), "int4:64 v 68 ", "= v 68 "},
           {LaidOutGroup(), "klt-profile:ultra k 68 ", "= k 68 "}}) {
    const absl::Status status = change(header, from, to);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("a bad codec"));
  }
  EXPECT_EQ(
      change(LaidOutGroup(), " = v 68 ", " klt-profile:ultra v 68 ").code(),
      absl::StatusCode::kDataLoss);
}

TEST(ArtefactHeader, TellsAPlainFileFromADamagedOne) {
  const std::string plain = testing::MakeFile({}, {{"format", "pt"}});
  EXPECT_EQ(ParseArtefactHeader(plain).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const std::string marked =
      testing::MakeFile({}, {{"kvcompress.format", "1"}});
  EXPECT_EQ(ParseArtefactHeader(marked).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseArtefactHeader("").status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseArtefactHeader(Serialize(SmallHeader()).substr(0, 70))
                .status()
                .code(),
            absl::StatusCode::kDataLoss);
}

TEST(Labels, AreChecked) {
  EXPECT_TRUE(ValidateLabels({{"model.rev-1_a", "x"}}).ok());
  EXPECT_TRUE(ValidateLabels({{"k", std::string(1024, 'x')}}).ok());
  EXPECT_FALSE(ValidateLabels({{"k", std::string(1025, 'x')}}).ok());
  EXPECT_FALSE(ValidateLabels({{"k", "\xff"}}).ok());
  EXPECT_FALSE(ValidateLabels({{"K", ""}}).ok());
  EXPECT_FALSE(ValidateLabels({{"", ""}}).ok());
  EXPECT_FALSE(ValidateLabels({{std::string(65, 'k'), ""}}).ok());
  Labels many;
  for (int i = 0; i < 33; ++i) many[absl::StrCat("k", i)] = "";
  EXPECT_FALSE(ValidateLabels(many).ok());
}

}  // namespace
}  // namespace kvcompress
