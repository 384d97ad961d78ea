// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/klt.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "codecs/ecsq/tensor_encoder.h"
#include "codecs/klt/preset.h"
#include "codecs/klt/stream_decoder.h"
#include "codecs/klt/tensor_encoder.h"
#include "codecs/whole_tensor.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kDefaultPreset = "contract";

absl::StatusOr<klt::Preset> RequirePreset(absl::string_view parameters) {
  if (const auto preset = klt::ParsePreset(parameters)) return *preset;
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("klt has no parameters ", QuoteName(parameters)),
      {.reason = "INVALID_CODEC"});
}

class Klt : public Codec {
 public:
  Klt() {
    traits_.name = "klt";
    traits_.description =
        "ecsq in the principal directions of the tensor over several heads, "
        "sent along; presets are contract, high, max and ultra, or two steps "
        "such as 0.6,0.7 for keys and values, 0.6,0.7,32 with the most "
        "directions, 1.5,2.35,96,0.45 with the weight of attention, "
        "1.8,2.8,96,0.45,0.75 with how strongly steps follow a layer";
    traits_.presets = {"contract", "high", "max", "ultra"};
    traits_.TakesNumbers();
    traits_.role_aware = true;
    traits_.tensor_memory = 14;
    traits_.weighs_tokens = true;
    traits_.couples_heads = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<std::string> Resolve(
      const CodecChoice& choice) const override {
    const absl::string_view preset =
        choice.preset.empty() ? kDefaultPreset : choice.preset;
    if (!klt::ParsePreset(preset)) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("klt has no preset ", QuoteName(preset),
                       ": contract, high, max, ultra, or two steps from 0.05 "
                       "to 8 such as 0.6,0.7, the most directions from 0 to "
                       "128 such as 0.6,0.7,32, the weight of attention from "
                       "0 to 1 such as 1.5,2.35,96,0.45, and how strongly "
                       "steps follow a layer from 0 to 2 such as "
                       "1.8,2.8,96,0.45,0.75"),
          {.reason = "INVALID_PRESET", .field = "options.preset"});
    }
    return std::string(preset);
  }

  std::vector<CodecChoice> SelfTestChoices() const override {
    // The others' steps are too coarse for a tensor of noise.
    return {{.name = traits_.name, .preset = "contract"},
            {.name = traits_.name, .preset = "high"}};
  }

  Candidates AutoCandidates(Effort effort) const override {
    if (effort == Effort::kFast) return {};
    return {{"contract"}, {"high", "max", "ultra"}};
  }

  bool decoder_holds_tensor() const override { return true; }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, absl::string_view parameters) const override {
    KVC_RETURN_IF_ERROR(RequirePreset(parameters).status());
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return ecsq::MaxPayloadSize(elements);
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, absl::string_view parameters,
      const EncodeHints& hints) const override {
    KVC_ASSIGN_OR_RETURN(const klt::Preset preset, RequirePreset(parameters));
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    if (!hints.attention.empty() && preset.weighting == 0) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("klt:", parameters,
                       " does not weigh tokens: max, ultra and presets with a "
                       "weight do"),
          {.reason = "INVALID_ATTENTION",
           .tensor = spec.name,
           .field = "options.attention"});
    }
    return NewWholeTensorEncoder(
        traits_.name, spec, elements, hints,
        [spec, preset, hints](const WholeTensor& tensor) {
          return klt::EncodeTensor(spec, preset, hints, tensor);
        });
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec, absl::string_view parameters) const override {
    KVC_RETURN_IF_ERROR(RequirePreset(parameters).status());
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return klt::NewStreamDecoder(spec, elements);
  }

  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec, absl::string_view parameters) const override {
    KVC_RETURN_IF_ERROR(RequirePreset(parameters).status());
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return klt::BoundsOfStreamDecoder(spec, elements);
  }

 private:
  CodecTraits traits_;
};

}  // namespace

const Codec& KltCodec() {
  static const Klt* const codec = new Klt;
  return *codec;
}

}  // namespace kvcompress
