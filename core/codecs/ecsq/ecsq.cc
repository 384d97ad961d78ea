// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/ecsq.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "codecs/ecsq/preset.h"
#include "codecs/ecsq/stream.h"
#include "codecs/ecsq/tensor_encoder.h"
#include "codecs/whole_tensor.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kDefaultPreset = "contract";

absl::StatusOr<ecsq::Preset> RequirePreset(absl::string_view parameters) {
  if (const auto preset = ecsq::ParsePreset(parameters)) return *preset;
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("ecsq has no parameters ", QuoteName(parameters)),
      {.reason = "INVALID_CODEC"});
}

class Ecsq : public Codec {
 public:
  Ecsq() {
    traits_.name = "ecsq";
    traits_.description =
        "Entropy-coded scalar quantization of keys without rotary embedding "
        "and of values without norms; presets are contract, high and max, or "
        "two steps such as 0.52,0.52 for keys and values";
    traits_.presets = {"contract", "high", "max"};
    traits_.TakesNumbers();
    traits_.role_aware = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<std::string> Resolve(
      const CodecChoice& choice) const override {
    const absl::string_view preset =
        choice.preset.empty() ? kDefaultPreset : choice.preset;
    if (!ecsq::ParsePreset(preset)) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("ecsq has no preset ", QuoteName(preset),
                       ": contract, high, max, or two steps from 0.05 to 8 "
                       "such as 0.52,0.52"),
          {.reason = "INVALID_PRESET", .field = "options.preset"});
    }
    return std::string(preset);
  }

  std::vector<CodecChoice> SelfTestChoices() const override {
    std::vector<CodecChoice> choices;
    for (const std::string& preset : traits_.presets) {
      choices.push_back({.name = traits_.name, .preset = preset});
    }
    return choices;
  }

  Candidates AutoCandidates(Effort) const override {
    return {{"contract"}, {"high", "max"}};
  }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, absl::string_view parameters) const override {
    KVC_RETURN_IF_ERROR(RequirePreset(parameters).status());
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return ecsq::MaxPayloadSize(elements);
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, absl::string_view parameters,
      const EncodeHints& hints) const override {
    KVC_ASSIGN_OR_RETURN(const ecsq::Preset preset, RequirePreset(parameters));
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return NewWholeTensorEncoder(
        traits_.name, spec, elements, hints,
        [spec, preset, hints](const WholeTensor& tensor) {
          return ecsq::EncodeTensor(spec, preset, hints, tensor);
        });
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec, absl::string_view parameters) const override {
    KVC_RETURN_IF_ERROR(RequirePreset(parameters).status());
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return ecsq::NewStreamDecoder(spec, elements);
  }

  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec, absl::string_view parameters) const override {
    KVC_RETURN_IF_ERROR(RequirePreset(parameters).status());
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return ecsq::BoundsOfStreamDecoder(spec, elements);
  }

 private:
  CodecTraits traits_;
};

}  // namespace

const Codec& EcsqCodec() {
  static const Ecsq* const codec = new Ecsq;
  return *codec;
}

}  // namespace kvcompress
