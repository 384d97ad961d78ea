// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A profile of one group for fuzzers, and a cache that it fits.

#ifndef KVCOMPRESS_TESTS_FUZZ_SMALL_PROFILE_H_
#define KVCOMPRESS_TESTS_FUZZ_SMALL_PROFILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "input.h"
#include "kvcompress/profile.h"
#include "kvcompress/safetensors.h"

namespace kvcompress::fuzz {

inline constexpr size_t kComponents = 40;
inline constexpr uint64_t kChannels = 24;

// Keys of a layer, whose first channels are turned, and its values.
inline std::shared_ptr<const Profile> MakeSmallProfile() {
  ProfileContent content;
  content.label = "fuzz";
  content.presets = {{"high", 0.5f}, {"max", 2.0f}, {"contract", 0.125f}};
  content.rotations = {{.interleaved = true,
                        .increments = std::vector<uint64_t>(8, 1ull << 60)}};
  ProfileGroup group;
  group.tensors = {
      {.role = TensorRole::kKey,
       .heads = 2,
       .channels = kChannels,
       .rotation = 0},
      {.role = TensorRole::kValue, .heads = 1, .channels = kChannels}};
  const size_t n = 3 * kChannels;
  group.components = kComponents;
  group.means.assign(n, 0.25f);
  group.scales.assign(n, 0x1p-15f);
  for (size_t i = 0; i < n * kComponents; ++i) {
    group.decode.push_back(static_cast<int16_t>(i * 7919 % 65535 - 32767));
  }
  for (size_t i = 0; i < content.presets.size() * kComponents; ++i) {
    group.classes.push_back(static_cast<uint8_t>(i * 5 % 72));
  }
  content.groups = {group};
  const absl::StatusOr<std::string> bytes = SerializeProfile(content);
  Require(bytes.ok(), "the profile of the fuzzer is one");
  return *Profile::Parse(*bytes);
}

inline std::shared_ptr<const Profile> SmallProfile() {
  static const auto* const profile =
      new std::shared_ptr<const Profile>(MakeSmallProfile());
  return *profile;
}

// A safetensors file with the tensors of the profile, and one more; values
// before keys where `reversed`.
inline std::string SmallCache(uint64_t tokens, bool reversed) {
  std::vector<TensorSpec> specs = {{.name = "layer_0_key",
                                    .dtype = DType::kBF16,
                                    .shape = {1, 2, tokens, kChannels}},
                                   {.name = "layer_0_value",
                                    .dtype = DType::kF16,
                                    .shape = {1, 1, tokens, kChannels}},
                                   {.name = "layer_1_value",
                                    .dtype = DType::kF32,
                                    .shape = {1, 1, tokens, kChannels}}};
  if (reversed) std::swap(specs[0], specs[1]);
  SafetensorsHeader header;
  for (const TensorSpec& spec : specs) {
    SafetensorsEntry entry;
    entry.spec = spec;
    entry.begin = header.data_size;
    header.data_size += *ElementCount(spec) * DTypeSize(spec.dtype);
    entry.end = header.data_size;
    header.tensors.push_back(entry);
  }
  // Finite in each of these types, and of magnitudes from 2^-8 to 4.
  std::string data = Repeat("\x21\x3c\xd4\xbc\x07\x3d\x90\xb9\x55\x40\xee\x3b",
                            header.data_size);
  return SerializeSafetensorsHeader(header) + data;
}

}  // namespace kvcompress::fuzz

#endif  // KVCOMPRESS_TESTS_FUZZ_SMALL_PROFILE_H_
