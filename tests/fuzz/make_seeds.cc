// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Writes a seed of decoder_fuzzer for every codec into a folder: a real
// payload of a small tensor, behind the bytes that choose codec and shape.
//
//   make_seeds FOLDER

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "input.h"
#include "kvcompress/codec.h"

namespace kvcompress::fuzz {
namespace {

// F32, [1, 2, 20, 32], of one role: as DrawSpec reads it.
constexpr uint8_t kSpec[] = {0, 1, 1, 2, 20, 32};

std::string Values(uint64_t elements) {
  std::minstd_rand random(1);
  std::normal_distribution<float> normal(0, 0.3f);
  std::string bytes(elements * sizeof(float), '\0');
  for (uint64_t i = 0; i < elements; ++i) {
    const float value = normal(random);
    std::memcpy(&bytes[i * sizeof(float)], &value, sizeof(float));
  }
  return bytes;
}

int Main(const std::string& folder) {
  Input input(kSpec, sizeof(kSpec));
  const TensorSpec spec = DrawSpec(&input);
  const std::string values = Values(*ElementCount(spec));
  const std::vector<CodecSpec>& codecs = StoredCodecs();
  for (size_t i = 0; i < codecs.size(); ++i) {
    auto encoder =
        codecs[i].codec->NewEncoder(spec, codecs[i].parameters, EncodeHints());
    std::string payload;
    if (!encoder.ok() || !(*encoder)->Append(values, &payload, nullptr).ok() ||
        !(*encoder)->Finish(&payload, nullptr).ok()) {
      std::fprintf(stderr, "%s does not encode\n",
                   codecs[i].ToString().c_str());
      return 1;
    }
    std::string name = codecs[i].ToString();
    for (char& c : name) {
      if (c == ':' || c == '+' || c == ',' || c == '=' || c == '/') c = '-';
    }
    std::ofstream file(absl::StrCat(folder, "/", name), std::ios::binary);
    file.put(static_cast<char>(i));
    file.write(reinterpret_cast<const char*>(kSpec), sizeof(kSpec));
    file.put('\7');  // cut into chunks of up to 28 bytes
    file << payload;
    if (!file) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace kvcompress::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: make_seeds FOLDER\n");
    return 1;
  }
  return kvcompress::fuzz::Main(argv[1]);
}
