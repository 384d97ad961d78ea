// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The bytes of a fuzzer, taken off the front one choice at a time.

#ifndef KVCOMPRESS_TESTS_FUZZ_INPUT_H_
#define KVCOMPRESS_TESTS_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvcompress/codec.h"

namespace kvcompress::fuzz {

// Ends the process with a message that a fuzzer reports as a finding.
inline void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

class Input {
 public:
  Input(const uint8_t* data, size_t size)
      : bytes_(reinterpret_cast<const char*>(data), size) {}

  // 0 when nothing is left.
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const char byte = bytes_.front();
    bytes_.remove_prefix(1);
    return static_cast<uint8_t>(byte);
  }

  // From 0 to `most`, which is below 256.
  size_t UpTo(size_t most) { return Byte() % (most + 1); }

  absl::string_view rest() const { return bytes_; }

 private:
  absl::string_view bytes_;
};

// `size` bytes: those given, over and over; zeros where there are none. In
// memory of that size, so that the address sanitizer sees what reads beyond.
inline std::string Repeat(absl::string_view given, size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size && !given.empty(); ++i) {
    bytes[i] = given[i % given.size()];
  }
  return bytes;
}

// Hands out `bytes` in chunks whose sizes follow from `seed`; 0: in one.
// Stops when `use` returns false.
template <typename Use>
void InChunks(absl::string_view bytes, uint8_t seed, Use use) {
  uint32_t state = seed;
  while (!bytes.empty()) {
    state = state * 1664525 + 1013904223;
    const size_t size =
        seed == 0
            ? bytes.size()
            : std::min<size_t>(bytes.size(), 1 + (state >> 16) % (4 * seed));
    if (!use(bytes.substr(0, size))) return;
    bytes.remove_prefix(size);
  }
}

// Every codec that a payload may be recorded under, with parameters that reach
// every path: those of the registry, and each with each byte compressor. In an
// order that only grows at its end with the registry's.
inline const std::vector<CodecSpec>& StoredCodecs() {
  static const auto* const specs = [] {
    auto* const all = new std::vector<CodecSpec>;
    std::vector<std::string> stages = {""};
    stages.insert(stages.end(), ByteCompressors().begin(),
                  ByteCompressors().end());
    for (const std::string& stage : stages) {
      for (const Codec* codec : AllCodecs()) {
        if (!codec->stored()) continue;
        for (const std::string& parameters : codec->SelfTestParameters()) {
          const absl::StatusOr<CodecSpec> spec =
              ParseCodec(CodecString(codec->traits().name, parameters, stage));
          Require(spec.ok(), "a choice of the self-test resolves");
          all->push_back(*spec);
        }
      }
    }
    return all;
  }();
  return *specs;
}

// A small tensor of a shape, type and role drawn from `input`; at most 2^14
// elements.
inline TensorSpec DrawSpec(Input* input) {
  const absl::Span<const DType> types = NumberDTypes();
  constexpr TensorRole kRoles[] = {TensorRole::kNone, TensorRole::kKey,
                                   TensorRole::kValue};
  TensorSpec spec;
  spec.name = "x";
  spec.dtype = types[input->UpTo(types.size() - 1)];
  spec.role = kRoles[input->UpTo(2)];
  if (input->UpTo(3) == 0) {
    spec.shape = {input->UpTo(255) * 7};
  } else {
    spec.shape = {1, input->UpTo(4), input->UpTo(40), input->UpTo(100)};
  }
  return spec;
}

}  // namespace kvcompress::fuzz

#endif  // KVCOMPRESS_TESTS_FUZZ_INPUT_H_
