// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Small caches whose layers repeat each other, and profiles trained on them.

#ifndef KVCOMPRESS_TESTS_UNIT_PROFILE_TRAINED_H_
#define KVCOMPRESS_TESTS_UNIT_PROFILE_TRAINED_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvcompress/profile.h"
#include "kvcompress/profile_training.h"
#include "quantization/rope.h"
#include "support/safetensors_file.h"

namespace kvcompress::testing {

inline constexpr size_t kProfileLayers = 4;
inline constexpr size_t kProfileHeads = 2;
inline constexpr size_t kProfileChannels = 16;
inline constexpr double kProfileTheta = 10000;

// Tensors [1, 2, tokens, 16] of four layers, sorted by name: mixtures of a few
// signals that all share, and a little noise. Keys are turned.
inline std::vector<NamedTensor> CacheOf(size_t tokens, uint32_t seed,
                                        DType dtype = DType::kBF16) {
  constexpr size_t kSignals = 6;
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> signals(tokens * kSignals);
  for (float& value : signals) value = normal(engine);
  std::mt19937 mixing(7);  // the same for every cache
  const uint64_t ratio = coding::RatioOf(kProfileTheta, kProfileChannels / 2);
  std::vector<NamedTensor> tensors;
  for (size_t layer = 0; layer < kProfileLayers; ++layer) {
    for (const bool key : {true, false}) {
      std::vector<float> values;
      for (size_t h = 0; h < kProfileHeads; ++h) {
        std::vector<float> mix(kSignals * kProfileChannels);
        for (float& value : mix) value = normal(mixing);
        const float mean = normal(mixing);
        std::vector<float> head(tokens * kProfileChannels);
        for (size_t i = 0; i < head.size(); ++i) {
          float sum = mean + 0.05f * normal(engine);
          for (size_t s = 0; s < kSignals; ++s) {
            sum += signals[i / kProfileChannels * kSignals + s] *
                   mix[s * kProfileChannels + i % kProfileChannels];
          }
          head[i] = sum;
        }
        if (key) {
          coding::Rotator().Rotate({.ratio = ratio}, /*back=*/false,
                                   kProfileChannels, 0, tokens, head.data());
        }
        values.insert(values.end(), head.begin(), head.end());
      }
      NamedTensor tensor;
      tensor.spec.name = absl::StrCat("layer_", layer, key ? "_key" : "_value");
      tensor.spec.dtype = dtype;
      tensor.spec.shape = {1, kProfileHeads, tokens, kProfileChannels};
      for (const float value : values) {
        AppendElement(dtype, value, &tensor.bytes);
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

class MemoryCache : public TrainingCache {
 public:
  explicit MemoryCache(std::vector<NamedTensor> tensors)
      : tensors_(std::move(tensors)) {
    for (const NamedTensor& tensor : tensors_) {
      specs_.push_back(tensor.spec);
      InferRole(&specs_.back());
    }
  }
  const std::string& name() const override { return name_; }
  const std::vector<TensorSpec>& tensors() const override { return specs_; }
  absl::StatusOr<std::string> Read(size_t tensor) override {
    return tensors_[tensor].bytes;
  }

 private:
  const std::string name_ = "memory";
  const std::vector<NamedTensor> tensors_;
  std::vector<TensorSpec> specs_;
};

// The bytes of a profile with groups of two layers; with `contract`, for that
// preset. Without presets, they are the usual ones.
inline std::string TrainedProfile(size_t layers_per_group = 2,
                                  bool contract = false,
                                  std::vector<ProfilePreset> presets = {}) {
  MemoryCache first(CacheOf(300, 1));
  MemoryCache second(CacheOf(70, 2));
  TrainingCache* const caches[] = {&first, &second};
  const absl::StatusOr<std::string> bytes =
      TrainProfile({.label = "test model",
                    .layers_per_group = layers_per_group,
                    .components = contract ? kMaxGroupComponents : 40,
                    .rope_theta = kProfileTheta,
                    .presets = std::move(presets),
                    .contract = contract},
                   caches);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

}  // namespace kvcompress::testing

#endif  // KVCOMPRESS_TESTS_UNIT_PROFILE_TRAINED_H_
