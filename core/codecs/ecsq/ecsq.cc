// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/ecsq/ecsq.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "codecs/option_schema.h"
#include "coding/identity/block_decoder.h"
#include "coding/identity/tensor_encoder.h"
#include "coding/step_options.h"
#include "coding/stream_decoder.h"
#include "kvcompress/error.h"
#include "status/macros.h"
#include "tensor/whole_tensor.h"

namespace kvcompress {
namespace {

using coding::StepOptions;

// Options and presets: "contract", "high", "max", or two steps "0.52,0.52".
const OptionSchema<StepOptions>& Schema() {
  static const auto* const schema = new OptionSchema<StepOptions>(
      "ecsq",
      {{coding::KeyStepOption(),
        [](double value, StepOptions* out) { out->key_step = value; }},
       {coding::ValueStepOption(),
        [](double value, StepOptions* out) { out->value_step = value; }}},
      {{"contract", coding::ContractSteps()},
       {"high", {.key_step = 0.36, .value_step = 0.43}},
       {"max", {.key_step = 0.6, .value_step = 0.8, .recent = true}}});
  return *schema;
}

class Ecsq : public Codec {
 public:
  Ecsq() {
    traits_.name = Schema().codec();
    traits_.description =
        "Entropy-coded scalar quantization of keys without rotary embedding "
        "and of values without norms";
    traits_.options = Schema().options();
    traits_.presets = Schema().presets();
    traits_.TakesNumbers();
    traits_.role_aware = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    return Schema().Parse(text);
  }

  std::vector<std::string> SelfTestParameters() const override {
    return traits_.presets;
  }

  Candidates AutoCandidates(Effort) const override {
    return {{"contract"}, {"high", "max"}};
  }

  bool shares_blocks() const override { return true; }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return coding::MaxPayloadSize(elements);
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters& parameters,
      const EncodeHints& hints) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return NewWholeTensorEncoder(traits_.name, spec, elements, hints,
                                 [spec, preset = parameters.As<StepOptions>(),
                                  hints](const WholeTensor& tensor) {
                                   return coding::EncodeTensor(spec, preset,
                                                               hints, tensor);
                                 });
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return coding::NewStreamDecoder(spec, elements, coding::NewIdentityDecoder);
  }

  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return coding::BoundsOfIdentityDecoder(spec, elements);
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
