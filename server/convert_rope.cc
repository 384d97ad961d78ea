// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "convert_rope.h"

namespace kvcompress {
namespace {

using Type = RopeScaling::Type;
using Pairs = RopeEmbedding::Pairs;

RopeScaling FromProto(const v1::RopeScaling& proto) {
  RopeScaling scaling;
  if (proto.has_linear()) {
    scaling.type = Type::kLinear;
    scaling.factor = proto.linear().factor();
  } else if (proto.has_llama3()) {
    const v1::RopeScaling::Llama3& llama3 = proto.llama3();
    scaling.type = Type::kLlama3;
    scaling.factor = llama3.factor();
    scaling.original_positions = llama3.original_positions();
    if (llama3.has_low_frequency_factor()) {
      scaling.low_frequency_factor = llama3.low_frequency_factor();
    }
    if (llama3.has_high_frequency_factor()) {
      scaling.high_frequency_factor = llama3.high_frequency_factor();
    }
  } else if (proto.has_yarn()) {
    const v1::RopeScaling::Yarn& yarn = proto.yarn();
    scaling.type = Type::kYarn;
    scaling.factor = yarn.factor();
    scaling.original_positions = yarn.original_positions();
    if (yarn.has_beta_fast()) scaling.beta_fast = yarn.beta_fast();
    if (yarn.has_beta_slow()) scaling.beta_slow = yarn.beta_slow();
    if (yarn.has_truncate()) scaling.truncate = yarn.truncate();
  }
  return scaling;
}

v1::RopeScaling ToProto(const RopeScaling& scaling) {
  v1::RopeScaling proto;
  switch (scaling.type) {
    case Type::kNone:
      break;
    case Type::kLinear:
      proto.mutable_linear()->set_factor(scaling.factor);
      break;
    case Type::kLlama3: {
      v1::RopeScaling::Llama3& llama3 = *proto.mutable_llama3();
      llama3.set_factor(scaling.factor);
      llama3.set_low_frequency_factor(scaling.low_frequency_factor);
      llama3.set_high_frequency_factor(scaling.high_frequency_factor);
      llama3.set_original_positions(scaling.original_positions);
      break;
    }
    case Type::kYarn: {
      v1::RopeScaling::Yarn& yarn = *proto.mutable_yarn();
      yarn.set_factor(scaling.factor);
      yarn.set_beta_fast(scaling.beta_fast);
      yarn.set_beta_slow(scaling.beta_slow);
      yarn.set_original_positions(scaling.original_positions);
      yarn.set_truncate(scaling.truncate);
      break;
    }
  }
  return proto;
}

Pairs FromProto(v1::RopePairs pairs) {
  switch (pairs) {
    case v1::ROPE_PAIRS_HALVES:
      return Pairs::kHalves;
    case v1::ROPE_PAIRS_INTERLEAVED:
      return Pairs::kInterleaved;
    default:
      return Pairs::kUnknown;
  }
}

v1::RopePairs ToProto(Pairs pairs) {
  switch (pairs) {
    case Pairs::kUnknown:
      break;
    case Pairs::kHalves:
      return v1::ROPE_PAIRS_HALVES;
    case Pairs::kInterleaved:
      return v1::ROPE_PAIRS_INTERLEAVED;
  }
  return v1::ROPE_PAIRS_UNSPECIFIED;
}

}  // namespace

RopeParameters FromProto(const v1::RopeParameters& proto) {
  RopeParameters rope;
  for (const v1::RopeEmbedding& embedding : proto.embeddings()) {
    rope.embeddings.push_back({.theta = embedding.theta(),
                               .pairs = FromProto(embedding.pairs()),
                               .first_channel = embedding.first_channel(),
                               .rotary_channels = embedding.rotary_channels(),
                               .scaling = FromProto(embedding.scaling())});
  }
  rope.layers.assign(proto.layers().begin(), proto.layers().end());
  return rope;
}

v1::RopeFinding ToProto(const RopeFinding& finding) {
  v1::RopeFinding proto;
  v1::RopeEmbedding& embedding = *proto.mutable_embedding();
  embedding.set_theta(finding.embedding.theta);
  embedding.set_pairs(ToProto(finding.embedding.pairs));
  embedding.set_first_channel(finding.embedding.first_channel);
  embedding.set_rotary_channels(finding.embedding.rotary_channels);
  if (finding.embedding.scaling.type != Type::kNone) {
    *embedding.mutable_scaling() = ToProto(finding.embedding.scaling);
  }
  proto.set_declared(finding.declared);
  return proto;
}

}  // namespace kvcompress
