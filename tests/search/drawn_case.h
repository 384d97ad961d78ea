// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Caches that are drawn at random, and what is asked of them.

#ifndef KVCOMPRESS_TESTS_SEARCH_DRAWN_CASE_H_
#define KVCOMPRESS_TESTS_SEARCH_DRAWN_CASE_H_

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/tensor.h"
#include "support/safetensors_file.h"

namespace kvcompress::search {

class Draw {
 public:
  explicit Draw(uint64_t number) : engine_(number) {}

  uint64_t Below(uint64_t bound) { return engine_() % bound; }
  bool OneIn(uint64_t count) { return Below(count) == 0; }
  template <typename T>
  T Of(const std::vector<T>& choices) {
    return choices[Below(choices.size())];
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

struct Case {
  std::vector<testing::NamedTensor> tensors;
  std::string file;
  CompressOptions options;
  std::string text;  // what was drawn, for people
};

// Layouts of keys and values of one shape [tokens, heads * channels], or more
// dimensions.
struct LaidOut {
  const char* layout;
  std::vector<uint64_t> (*shape)(uint64_t heads, uint64_t tokens, uint64_t dim);
};

inline const LaidOut kLaidOut[] = {
    {"",
     [](uint64_t h, uint64_t t, uint64_t d) {
       return std::vector<uint64_t>{1, h, t, d};
     }},
    {"thd",
     [](uint64_t h, uint64_t t, uint64_t d) {
       return std::vector<uint64_t>{t, h, d};
     }},
    {"lthd",
     [](uint64_t h, uint64_t t, uint64_t d) {
       return std::vector<uint64_t>{2, t, h, d};
     }},
    {"2lthd",
     [](uint64_t h, uint64_t t, uint64_t d) {
       return std::vector<uint64_t>{2, 1, t, h, d};
     }},
    {"phsd",
     [](uint64_t h, uint64_t t, uint64_t d) {
       return std::vector<uint64_t>{(t + 15) / 16, h, 16, d};
     }},
};

// Values with what real caches have: channels with means, tokens that repeat,
// rare large values; or zeros.
inline std::string Values(Draw* draw, const TensorSpec& spec) {
  const uint64_t count = *ElementCount(spec);
  if (!IsNumber(spec.dtype)) {
    std::string bytes(count * DTypeSize(spec.dtype), '\0');
    for (char& byte : bytes) byte = static_cast<char>(draw->Below(256));
    return bytes;
  }
  std::string bytes;
  bytes.reserve(count * DTypeSize(spec.dtype));
  const uint64_t kind = draw->Below(5);
  const uint64_t channels = spec.shape.back();
  std::normal_distribution<float> normal(0, 1);
  for (uint64_t i = 0; i < count; ++i) {
    float value = 0;
    if (kind > 0) value = normal(draw->engine());
    if (kind == 2) value += static_cast<float>(i % channels % 7) * 9;
    if (kind == 3 && draw->OneIn(500)) value *= 100;
    AppendElement(spec.dtype, value, &bytes);
  }
  const uint64_t row = channels * DTypeSize(spec.dtype);
  if (kind == 4) {
    for (uint64_t at = bytes.size() / 2 / row * row; at < bytes.size();
         at += row) {
      bytes.replace(at, row, bytes, at % (16 * row), row);
    }
  }
  return bytes;
}

inline std::string DrawCodec(Draw* draw) {
  const Codec& codec = *AllCodecs()[draw->Below(AllCodecs().size())];
  std::string parameters;
  if (draw->OneIn(2)) {
    std::vector<std::string> choices = codec.SelfTestParameters();
    const std::vector<std::string>& presets = codec.traits().presets;
    choices.insert(choices.end(), presets.begin(), presets.end());
    parameters = draw->Of(choices);
  }
  std::vector<std::string> stages = ByteCompressors();
  stages.insert(stages.end(), {"", ""});
  return CodecString(codec.traits().name, parameters, draw->Of(stages));
}

inline Case DrawCase(uint64_t number, uint64_t largest) {
  Draw draw(number);
  Case drawn;
  const LaidOut& laid_out =
      draw.OneIn(2) ? kLaidOut[0] : kLaidOut[draw.Below(std::size(kLaidOut))];
  const DType dtype = draw.Of(
      std::vector<DType>{DType::kF16, DType::kBF16, DType::kBF16, DType::kF32,
                         DType::kF64, DType::kF8E4M3, DType::kF8E5M2});
  const uint64_t heads = draw.Of(std::vector<uint64_t>{1, 2, 3, 8});
  const uint64_t dim =
      draw.Of(std::vector<uint64_t>{1, 16, 64, 80, 128, 256, 1024, 4096});
  uint64_t tokens = draw.Of(
      std::vector<uint64_t>{1, 7, 64, 65, 500, 513, 1024, 1500, 2048, 5000});
  while (tokens > 1 && heads * tokens * dim * DTypeSize(dtype) > largest) {
    tokens = (tokens + 1) / 2;
  }
  const uint64_t layers = 1 + draw.Below(3);
  for (uint64_t layer = 0; layer < layers; ++layer) {
    for (const char* role : {"key", "value"}) {
      testing::NamedTensor tensor;
      tensor.spec = {.name = absl::StrCat("layer_", layer, "_", role),
                     .dtype = dtype,
                     .shape = laid_out.shape(heads, tokens, dim)};
      tensor.bytes = Values(&draw, tensor.spec);
      drawn.tensors.push_back(std::move(tensor));
    }
  }
  if (draw.OneIn(3)) {
    testing::NamedTensor other;
    other.spec = {.name = "positions",
                  .dtype = draw.Of(std::vector<DType>{
                      DType::kI64, DType::kU8, DType::kC64, DType::kI16}),
                  .shape = {draw.Of(std::vector<uint64_t>{1, 1000, 100000})}};
    other.bytes = Values(&draw, other.spec);
    drawn.tensors.insert(
        drawn.tensors.begin() +
            static_cast<int64_t>(draw.Below(drawn.tensors.size() + 1)),
        std::move(other));
  }
  drawn.file = testing::MakeFile(drawn.tensors);
  drawn.options.codec = DrawCodec(&draw);
  drawn.options.layout = laid_out.layout;
  drawn.options.reconstruct = true;
  if (draw.OneIn(3)) drawn.options.effort = Effort::kFast;
  drawn.text = absl::StrCat(drawn.options.codec, " ", DTypeName(dtype), " [",
                            absl::StrJoin(drawn.tensors.back().spec.shape, ","),
                            "] layout \"", laid_out.layout, "\" tensors ",
                            drawn.tensors.size());
  return drawn;
}

}  // namespace kvcompress::search

#endif  // KVCOMPRESS_TESTS_SEARCH_DRAWN_CASE_H_
