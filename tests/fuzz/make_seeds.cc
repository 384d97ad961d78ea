// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Writes seeds into the folders `decoder` and `klt` of a folder: for every
// codec, and for presets of klt, a real payload of a small tensor, behind the
// bytes that choose codec and shape. Into `profiled`, artefacts that were made
// with a profile; into `artefact`, small ones of large blocks.
//
//   make_seeds FOLDER

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "input.h"
#include "klt.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "small_profile.h"

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

// A payload of `values`; empty, with a message, when it cannot be.
std::string PayloadOf(const CodecSpec& codec, const TensorSpec& spec) {
  const std::string values = Values(*ElementCount(spec));
  auto encoder = codec.codec->NewEncoder(spec, codec.parameters, EncodeHints());
  std::string payload;
  if (!encoder.ok() || !(*encoder)->Append(values, &payload, nullptr).ok() ||
      !(*encoder)->Finish(&payload, nullptr).ok()) {
    std::fprintf(stderr, "%s does not encode\n", codec.ToString().c_str());
    return "";
  }
  return payload;
}

// `head`, then `payload`; false when it cannot be written.
bool Write(const std::string& path, absl::string_view head,
           absl::string_view payload) {
  std::ofstream file(path, std::ios::binary);
  file << head << payload;
  return !payload.empty() && file.flush();
}

// Artefacts that were made with the profile of the fuzzers.
bool WriteProfiled(const std::string& folder) {
  for (const char* codec :
       {"klt:high", "klt:max", "klt:contract", "lossless"}) {
    for (const bool reversed : {false, true}) {
      CompressOptions options;
      options.codec = codec;
      options.profile = SmallProfile();
      Compressor compressor(options, {});
      CompressOutput output;
      const absl::Status status =
          compressor.Append(SmallCache(reversed ? 5 : 40, reversed), &output);
      Require(status.ok() && compressor.Finish().ok(),
              "a cache of the fuzzers is compressed");
      const char* const order = reversed ? "-reversed" : "";
      if (!Write(absl::StrCat(folder, "/profiled/", codec, order),
                 std::string("\0\7", 2),
                 compressor.header() + output.artefact)) {
        return false;
      }
    }
  }
  return true;
}

// Artefacts of zeros, whose blocks become larger than any slice of a
// decompressor.
bool WriteLargeBlocks(const std::string& folder) {
  constexpr uint64_t kElements = 2048 * 256;
  SafetensorsHeader header;
  for (const char* role : {"key", "value"}) {
    SafetensorsEntry entry;
    entry.spec = {.name = absl::StrCat("layer_0_", role),
                  .dtype = DType::kF16,
                  .shape = {1, 1, 2048, 256}};
    entry.begin = header.data_size;
    header.data_size += 2 * kElements;
    entry.end = header.data_size;
    header.tensors.push_back(entry);
  }
  const std::string file =
      SerializeSafetensorsHeader(header) + std::string(header.data_size, '\0');
  for (const char* codec : {"ecsq", "klt+zstd", "lossless+lz4"}) {
    Compressor compressor({.codec = codec}, {});
    CompressOutput output;
    Require(compressor.Append(file, &output).ok() && compressor.Finish().ok(),
            "zeros are compressed");
    if (!Write(absl::StrCat(folder, "/artefact/large-", codec),
               std::string("\0\7", 2), compressor.header() + output.artefact)) {
      return false;
    }
  }
  return true;
}

int Main(const std::string& folder) {
  if (!WriteProfiled(folder) || !WriteLargeBlocks(folder)) return 1;
  Input input(kSpec, sizeof(kSpec));
  const TensorSpec spec = DrawSpec(&input);
  const std::string choices(reinterpret_cast<const char*>(kSpec),
                            sizeof(kSpec));
  const std::vector<CodecSpec>& codecs = StoredCodecs();
  for (size_t i = 0; i < codecs.size(); ++i) {
    std::string name = codecs[i].ToString();
    for (char& c : name) {
      if (c == ':' || c == '+' || c == ',' || c == '=' || c == '/') c = '-';
    }
    // Cut into chunks of up to 28 bytes.
    const std::string head =
        absl::StrCat(std::string(1, static_cast<char>(i)), choices, "\7");
    if (!Write(absl::StrCat(folder, "/decoder/", name), head,
               PayloadOf(codecs[i], spec))) {
      return 1;
    }
  }
  constexpr char kUltra = 3;
  for (char seed = 0; seed < 7; ++seed) {
    // Two heads, 150 tokens, 16 channels; or one head, 130 tokens, 257.
    const bool wide = seed == 6;
    const std::string drawn =
        std::string(1, wide ? kUltra : seed) + choices +
        (wide ? std::string("\0\2\x20", 3) : std::string("\1\x16\xf"));
    Input taken(reinterpret_cast<const uint8_t*>(drawn.data()), drawn.size());
    const CodecSpec codec = DrawKlt(&taken);
    const TensorSpec long_spec = DrawKltSpec(&taken);
    const std::string head = std::string(1, '\0') + drawn + "\x7f";
    if (!Write(absl::StrCat(folder, "/klt/", std::to_string(seed)), head,
               PayloadOf(codec, long_spec))) {
      return 1;
    }
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
