// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/codec.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"
#include "profile/group_format.h"
#include "profile/rules.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

absl::Status InGroups() {
  return absl::InternalError("a tensor of a group is not coded by itself");
}

class ProfileCodec : public Codec {
 public:
  explicit ProfileCodec(CodecTraits traits) : traits_(std::move(traits)) {
    traits_.role_aware = true;
    traits_.couples_heads = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    if (!profile::IsPresetName(text)) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat(traits_.name, " takes the name of a preset, not ",
                       QuoteName(text)),
          {.reason = "INVALID_CODEC_OPTION", .field = "options.codec"});
    }
    return CodecParameters::Of(std::string(text), 0);
  }

  bool coded_in_groups() const override { return true; }

  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec&, const CodecParameters&) const override {
    return InGroups();
  }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return profile::GroupPayloadBound(elements);
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec&, const CodecParameters&,
      const EncodeHints&) const override {
    return InGroups();
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec&, const CodecParameters&) const override {
    return InGroups();
  }

 private:
  CodecTraits traits_;
};

}  // namespace

const Codec& KltProfileCodec() {
  static const ProfileCodec* const codec = [] {
    CodecTraits traits;
    traits.name = "klt-profile";
    traits.description = "klt over groups of tensors, with a trained profile";
    traits.TakesNumbers();
    return new ProfileCodec(std::move(traits));
  }();
  return *codec;
}

const Codec& LosslessProfileCodec() {
  static const ProfileCodec* const codec = [] {
    CodecTraits traits;
    traits.name = "lossless-profile";
    traits.description =
        "klt over groups of tensors, with a trained profile, and what it lost";
    traits.dtypes = {DType::kF16, DType::kBF16};
    traits.lossless = true;
    return new ProfileCodec(std::move(traits));
  }();
  return *codec;
}

const Codec* FindProfileCodec(absl::string_view name) {
  for (const Codec* codec : {&KltProfileCodec(), &LosslessProfileCodec()}) {
    if (name == codec->traits().name) return codec;
  }
  return nullptr;
}

CodecSpec ProfileCodecSpec(const Codec& codec, absl::string_view preset) {
  return {&codec, CodecParameters::Of(std::string(preset), 0)};
}

}  // namespace kvcompress
