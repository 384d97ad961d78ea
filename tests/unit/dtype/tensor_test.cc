// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/tensor.h"

#include <gtest/gtest.h>

namespace kvcompress {
namespace {

absl::StatusOr<uint64_t> Count(std::vector<uint64_t> shape,
                               DType dtype = DType::kF32) {
  return ElementCount({.name = "x", .dtype = dtype, .shape = std::move(shape)});
}

TEST(ElementCount, MultipliesTheShape) {
  EXPECT_EQ(*Count({}), 1);
  EXPECT_EQ(*Count({0}), 0);
  EXPECT_EQ(*Count({1, 3, 96, 64}), 18432);
  EXPECT_EQ(*Count({0, uint64_t{1} << 40, uint64_t{1} << 40}), 0);
}

TEST(ElementCount, RefusesWhatOverflows) {
  const uint64_t big = uint64_t{1} << 32;
  EXPECT_FALSE(Count({big, big}).ok());  // wraps to exactly 0
  EXPECT_FALSE(Count({big, big, 0}).ok());
  EXPECT_FALSE(Count({uint64_t{1} << 61}).ok());  // in bytes
  EXPECT_TRUE(Count({uint64_t{1} << 60}).ok());
  EXPECT_FALSE(Count(std::vector<uint64_t>(kMaxRank + 1, 1)).ok());
  EXPECT_TRUE(Count(std::vector<uint64_t>(kMaxRank, 1)).ok());
}

TEST(InferRole, ReadsLayerAndRoleFromTheName) {
  const auto infer = [](std::string name) {
    TensorSpec spec{.name = std::move(name)};
    InferRole(&spec);
    return spec;
  };
  EXPECT_EQ(infer("layer_0_key").role, TensorRole::kKey);
  EXPECT_EQ(infer("layer_0_key").layer, 0);
  EXPECT_EQ(infer("layer_31_value").role, TensorRole::kValue);
  EXPECT_EQ(infer("layer_31_value").layer, 31);
  for (const char* key : {"layer_7_key",
                          "past_key_values.7.key",
                          "decoder.past_key_values.7.key",
                          "key_cache.7",
                          "cache.key_cache.7",
                          "layers.7.self_attn.k_cache",
                          "model.layers.7.self_attn.k_cache",
                          "cache_k_l7",
                          "present.7.key",
                          "decoder.key_cache_7",
                          "key_cache_7",
                          "layers.7.keys",
                          "cache.layers.7.keys",
                          "model.layers.7.self_attn.attn.k_cache",
                          "transformer.h.7.attn.attn.key_cache",
                          "k_buffer.7",
                          "model.decoder.layers.7.encoder_attn.attn.key_cache",
                          "layers.7.k_cache",
                          "layer_7_keys",
                          "layer_7_k",
                          "layer_7_K",
                          "layer7_key",
                          "x.layer.7.key",
                          "past_key_7",
                          "present_key_7",
                          "past_7_key",
                          "present_7_key",
                          "past_key_values_7_key",
                          "present_key_values_7_key",
                          "present_key_values.7.key",
                          "past_key_values.7.decoder.key",
                          "present.7.encoder.key",
                          "k_cache_7",
                          "layers.7.key_cache",
                          "key_7",
                          "k_7",
                          "K_7",
                          "layers.1.kv.7.k",
                          "kv.7.key",
                          "kv.7.keys"}) {
    EXPECT_EQ(infer(key).role, TensorRole::kKey) << key;
    EXPECT_EQ(infer(key).layer, 7) << key;
  }
  for (const char* value : {"layer_123456789_value",
                            "past_key_values.123456789.value",
                            "value_cache.123456789",
                            "model.layers.123456789.self_attn.v_cache",
                            "cache_v_l123456789",
                            "present.123456789.value",
                            "value_cache_123456789",
                            "cache.layers.123456789.values",
                            "model.layers.123456789.self_attn.attn.v_cache",
                            "h.123456789.attn.value_cache",
                            "token_to_kv_pool.v_buffer.123456789",
                            "layers.123456789.v_cache",
                            "layer_123456789_values",
                            "layer_123456789_V",
                            "layer.123456789.value",
                            "past_value_123456789",
                            "present_value_123456789",
                            "past_123456789_value",
                            "past_key_values_123456789_value",
                            "present_key_values.123456789.value",
                            "past_key_values.123456789.encoder.value",
                            "v_cache_123456789",
                            "value_123456789",
                            "v_123456789",
                            "V_123456789",
                            "kv.123456789.v",
                            "kv.123456789.values"}) {
    EXPECT_EQ(infer(value).role, TensorRole::kValue) << value;
    EXPECT_EQ(infer(value).layer, 123456789) << value;
  }
  for (const char* together :
       {"model.layers.12.self_attn.attn", "layers.12.self_attn.attn",
        "model.decoder.layers.12.encoder_attn.attn",
        "model.layers.12.self_attn.attn.kv_cache", "transformer.h.12.attn.attn",
        "h.12.attn.kv_cache", "kv_cache.12", "token_to_kv_pool.kv_buffer.12"}) {
    EXPECT_EQ(infer(together).role, TensorRole::kNone) << together;
    EXPECT_EQ(infer(together).layer, 12) << together;
  }
  for (const char* other : {"xpast_key_values.1.key",
                            "past_key_values.1.key.x",
                            "past_key_values.01.key",
                            "key_cache.",
                            "mykey_cache.1",
                            "key_cache.1.x",
                            "xlayers.1.self_attn.k_cache",
                            "cache_k_l",
                            "x.cache_k_l1",
                            "cache_k_l00",
                            "kv_cache",
                            "tensor_bytes",
                            "layers.0.attn",
                            "layers.0.h.1.attn.attn",
                            "xkv_cache.0",
                            "kv_cache.00",
                            "layers.1.layers.2.attn.k_cache",
                            "layers.1.h.2.attn.k_cache",
                            "layers.1..keys",
                            "layers.01.attn.k_cache",
                            "layers.x.attn.k_cache",
                            "mykey_cache_1",
                            "0.0",
                            "0.1",
                            "cache_q_l1",
                            "layers.9999999999.self_attn.k_cache",
                            "layer_01_key",
                            "layer__key",
                            "layer_-1_key",
                            "layer_1x_key",
                            "layer_1234567890_key",
                            "layer_1_keyss",
                            "layer1_k",
                            "x.layer_1_k",
                            "x.key_1",
                            "k_01",
                            "block_cache_1",
                            "past_key_1_key",
                            "layers.1.kv.2.x",
                            "kv.1.key.k",
                            "xlayer_1_key",
                            "key",
                            ""}) {
    EXPECT_EQ(infer(other).role, TensorRole::kNone) << other;
    EXPECT_EQ(infer(other).layer, std::nullopt) << other;
  }
}

TEST(InferRole, KeepsWhatWasDeclared) {
  TensorSpec spec{
      .name = "layer_3_key", .role = TensorRole::kValue, .layer = 7};
  InferRole(&spec);
  EXPECT_EQ(spec.role, TensorRole::kValue);
  EXPECT_EQ(spec.layer, 7);
}

}  // namespace
}  // namespace kvcompress
