// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/klt.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "codecs/klt/block_decoder.h"
#include "codecs/klt/preset.h"
#include "codecs/klt/tensor_encoder.h"
#include "coding/identity/tensor_encoder.h"
#include "coding/stream_decoder.h"
#include "kvcompress/error.h"
#include "status/macros.h"
#include "tensor/whole_tensor.h"

namespace kvcompress {
namespace {

class Klt : public Codec {
 public:
  Klt() {
    traits_.name = klt::Schema().codec();
    traits_.description =
        "ecsq in the principal components of the tensor over several heads, "
        "sent along";
    traits_.options = klt::Schema().options();
    traits_.presets = klt::Schema().presets();
    traits_.TakesNumbers();
    traits_.role_aware = true;
    traits_.tensor_memory = 4;
    traits_.weighs_tokens = true;
    traits_.takes_key_hints = true;
    traits_.couples_heads = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    return klt::Schema().Parse(text);
  }

  std::vector<std::string> SelfTestParameters() const override {
    // The others' steps are too coarse for a tensor of noise.
    return {"contract", "high"};
  }

  Candidates AutoCandidates(Effort effort) const override {
    if (effort == Effort::kFast) return {};
    return {{"contract"}, {"high", "max", "ultra"}};
  }

  bool decoder_holds_tensor() const override { return true; }

  bool shares_blocks() const override { return true; }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return coding::MaxPayloadSize(elements);
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters& parameters,
      const EncodeHints& hints) const override {
    const auto& preset = parameters.As<klt::Preset>();
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    if (!hints.attention.empty() && preset.weighting == 0) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("klt:", parameters.text(),
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
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return coding::NewStreamDecoder(spec, elements, klt::NewKltDecoder);
  }

  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return klt::BoundsOfKltDecoder(spec, elements);
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
