// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What GetServerInfo reports of codecs and profiles.

#include <string>

#include "convert.h"

namespace kvcompress {
namespace {

v1::CodecParameter::Type ToProto(CodecOption::Type type) {
  switch (type) {
    case CodecOption::Type::kBoolean:
      return v1::CodecParameter::TYPE_BOOLEAN;
    case CodecOption::Type::kInteger:
      return v1::CodecParameter::TYPE_INTEGER;
    case CodecOption::Type::kDecimal:
      return v1::CodecParameter::TYPE_DECIMAL;
  }
  return v1::CodecParameter::TYPE_UNSPECIFIED;
}

}  // namespace

v1::CodecInfo ToProto(const CodecTraits& traits) {
  v1::CodecInfo proto;
  proto.set_name(traits.name);
  proto.set_description(traits.description);
  for (const CodecOption& option : traits.options) {
    v1::CodecParameter& out = *proto.add_parameters();
    out.set_name(option.name);
    out.set_type(ToProto(option.type));
    out.set_range(option.Range());
    for (const std::string& value : option.ValueTexts()) out.add_values(value);
    out.set_default_value(option.DefaultText());
    out.set_required(option.required);
    out.set_description(option.description);
  }
  for (const std::string& preset : traits.presets) proto.add_presets(preset);
  for (DType dtype : traits.dtypes) proto.add_dtypes(ToProto(dtype));
  proto.set_lossless(traits.lossless);
  proto.set_streaming(traits.streaming);
  proto.set_fixed_size(traits.fixed_size);
  proto.set_role_aware(traits.role_aware);
  proto.set_couples_heads(traits.couples_heads);
  proto.set_weighs_tokens(traits.weighs_tokens);
  return proto;
}

v1::ProfileInfo ToProto(const LoadedProfile& loaded) {
  const ProfileContent& content = loaded.profile->content();
  v1::ProfileInfo proto;
  proto.set_name(loaded.name);
  proto.set_digest(loaded.profile->id().digest);
  proto.set_label(loaded.profile->id().label);
  proto.set_groups(content.groups.size());
  uint64_t tensors = 0;
  for (const ProfileGroup& group : content.groups) {
    tensors += group.tensors.size();
  }
  proto.set_tensors(tensors);
  proto.set_size_bytes(loaded.profile->memory());
  for (const ProfilePreset& preset : content.presets) {
    proto.add_presets(preset.name);
    if (!preset.expected) continue;
    *proto.add_expectations() = ToProto(preset.name, *preset.expected);
  }
  proto.set_training(content.training);
  return proto;
}

}  // namespace kvcompress
