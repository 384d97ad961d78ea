// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The rules of what a byte compressor may have written, against the libraries.
// Frames that break one rule each are in
// tests/contract/oracle/test_byte_compressors.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lz4hc.h>
#include <zstd.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "codecs/last_stage/lz4_block.h"
#include "codecs/last_stage/zstd_frame.h"

namespace kvcompress {
namespace {

std::string RepetitiveText(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < size) {
    const size_t back = random() % 4000 + 1;
    if (random() % 3 != 0 && back < text.size()) {
      text.append(text, text.size() - back, random() % 40 + 3);
    } else {
      text += static_cast<char>(random() % 60);
    }
  }
  text.resize(size);
  return text;
}

// Two codes of four bits in a byte, spread as those of a group are.
std::string PackedCodes(size_t size) {
  std::mt19937 random(7);
  std::string codes;
  for (size_t i = 0; i < size; ++i) {
    const auto code = [&] {
      return (random() % 6 + random() % 6 + random() % 6) & 15;
    };
    const uint32_t low = code();
    codes += static_cast<char>(low | code() << 4);
  }
  return codes;
}

std::vector<std::string> ContentsToCompress() {
  std::vector<std::string> contents;
  for (const size_t size : {2, 20, 255, 256, 3000, 65791, 65792, 131072}) {
    contents.push_back(RepetitiveText(size, 1));
    contents.push_back(PackedCodes(size));
    contents.emplace_back(size, '\0');
    contents.push_back(RepetitiveText(size / 2, 2) +
                       PackedCodes(size - size / 2));
  }
  return contents;
}

std::string ZstdFrame(const std::string& content, int level) {
  std::string frame(ZSTD_compressBound(content.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), content.data(),
                             content.size(), level));
  return frame;
}

std::string Lz4Block(const std::string& content, int level) {
  const int size = static_cast<int>(content.size());
  std::string block(static_cast<size_t>(LZ4_compressBound(size)), '\0');
  const int written =
      level == 0 ? LZ4_compress_default(content.data(), block.data(), size,
                                        static_cast<int>(block.size()))
                 : LZ4_compress_HC(content.data(), block.data(), size,
                                   static_cast<int>(block.size()), level);
  block.resize(static_cast<size_t>(written));
  return block;
}

// Changes a few places, more often than not near an end.
std::string WithChanges(std::string bytes, std::mt19937* random) {
  for (size_t changes = (*random)() % 3 + 1; changes > 0; --changes) {
    const size_t near = std::min<size_t>(bytes.size(), 60);
    size_t at = (*random)() % ((*random)() % 2 == 0 ? near : bytes.size());
    if ((*random)() % 4 == 0) at = bytes.size() - 1 - at % near;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << ((*random)() % 8)));
  }
  return bytes;
}

TEST(ByteCompressorsTest, EveryLevelKeepsTheRules) {
  for (const std::string& content : ContentsToCompress()) {
    for (const int level : {-7, -1, 1, 2, 3, 5, 7, 9, 12, 16, 19, 22}) {
      EXPECT_TRUE(
          CheckZstdFrame(ZstdFrame(content, level), content.size()).ok())
          << content.size() << " at " << level;
    }
    for (const int level : {0, 3, 9, 12}) {
      EXPECT_TRUE(CheckLz4Block(Lz4Block(content, level), content.size()).ok())
          << content.size() << " at " << level;
    }
  }
}

TEST(ByteCompressorsTest, AnotherSizeBreaksThem) {
  for (const std::string& content : ContentsToCompress()) {
    const std::string frame = ZstdFrame(content, 3);
    const std::string block = Lz4Block(content, 0);
    for (const size_t size :
         {size_t{0}, content.size() - 1, content.size() + 1, size_t{1} << 40}) {
      EXPECT_FALSE(CheckZstdFrame(frame, size).ok()) << content.size();
      EXPECT_FALSE(CheckLz4Block(block, size).ok()) << content.size();
    }
  }
}

TEST(ByteCompressorsTest, EveryCutBreaksThem) {
  const std::string content = RepetitiveText(600, 3) + PackedCodes(600);
  const std::string frame = ZstdFrame(content, 19);
  const std::string block = Lz4Block(content, 0);
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_FALSE(CheckZstdFrame(frame.substr(0, size), content.size()).ok())
        << size;
  }
  for (size_t size = 0; size < block.size(); ++size) {
    EXPECT_FALSE(CheckLz4Block(block.substr(0, size), content.size()).ok())
        << size;
  }
}

TEST(ByteCompressorsTest, ErrorsSayWhereAndWhat) {
  const std::string content = RepetitiveText(2000, 5) + PackedCodes(1000);
  const std::string frame = ZstdFrame(content, 19);
  const auto zstd_error = [&](absl::string_view changed) {
    return std::string(CheckZstdFrame(changed, content.size()).message());
  };
  EXPECT_EQ(zstd_error("abc"),
            "the Zstandard frame does not begin with its magic number");
  EXPECT_EQ(zstd_error(frame.substr(0, 4)),
            "the descriptor of the Zstandard frame is not that of a single "
            "segment of 3000 bytes");
  EXPECT_EQ(zstd_error(frame.substr(0, 6)),
            "the header of the Zstandard frame does not say 3000 bytes");
  EXPECT_EQ(zstd_error(frame.substr(0, 9)),
            "block 0 of the Zstandard frame, at its byte 7: its header is cut "
            "short");
  EXPECT_EQ(zstd_error(frame.substr(0, 100)),
            "block 0 of the Zstandard frame, at its byte 7: it is cut short");
  std::set<std::string> errors;
  for (size_t i = 10; i < frame.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = frame;
      changed[i] = static_cast<char>(changed[i] ^ 1 << bit);
      errors.insert(zstd_error(changed));
    }
  }
  errors.erase("");
  for (const char* part :
       {"the literals are cut short", "the weights of the tree",
        "a stream of literals does not end where they do",
        "the modes of the sequences", " has an offset that leads out",
        " takes more literals than there are", " leaves bits"}) {
    EXPECT_THAT(errors, ::testing::Contains(::testing::AllOf(
                            ::testing::StartsWith("block 0 of the Zstandard "
                                                  "frame, at its byte 7: "),
                            ::testing::HasSubstr(part))));
  }
  EXPECT_EQ(CheckLz4Block("\xf0", 20).message(),
            "the sequence at byte 0 of the LZ4 block: its number of literals "
            "is cut short");
  EXPECT_EQ(CheckLz4Block("\x20q", 20).message(),
            "the sequence at byte 0 of the LZ4 block: its literals do not fit");
}

TEST(ByteCompressorsTest, WhatKeepsTheRulesTheLibrariesRead) {
  std::mt19937 random(4);
  size_t zstd_kept = 0;
  size_t lz4_kept = 0;
  for (int i = 0; i < 20000; ++i) {
    const size_t size = 20 + random() % 3000;
    const std::string content =
        i % 2 == 0 ? RepetitiveText(size, random()) : PackedCodes(size);
    std::string decoded(size, '\0');
    const std::string frame = WithChanges(
        ZstdFrame(content, static_cast<int>(random() % 19) + 1), &random);
    if (CheckZstdFrame(frame, size).ok()) {
      ++zstd_kept;
      EXPECT_EQ(
          ZSTD_decompress(decoded.data(), size, frame.data(), frame.size()),
          size);
    }
    const std::string block = WithChanges(Lz4Block(content, 0), &random);
    if (CheckLz4Block(block, size).ok()) {
      ++lz4_kept;
      EXPECT_EQ(LZ4_decompress_safe(block.data(), decoded.data(),
                                    static_cast<int>(block.size()),
                                    static_cast<int>(size)),
                static_cast<int>(size));
    }
  }
  EXPECT_GT(zstd_kept, 1000);
  EXPECT_GT(lz4_kept, 1000);
}

}  // namespace
}  // namespace kvcompress
