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

class Ecsq : public Codec {
 public:
  Ecsq() {
    traits_.name = ecsq::Schema().codec();
    traits_.description =
        "Entropy-coded scalar quantization of keys without rotary embedding "
        "and of values without norms";
    traits_.options = ecsq::Schema().options();
    traits_.presets = ecsq::Schema().presets();
    traits_.dtypes = {DType::kF32, DType::kF16, DType::kBF16};
    traits_.role_aware = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    return ecsq::Schema().Parse(text);
  }

  std::vector<std::string> SelfTestParameters() const override {
    return traits_.presets;
  }

  Candidates AutoCandidates(Effort) const override {
    return {{"contract"}, {"high", "max"}};
  }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return ecsq::MaxPayloadSize(elements);
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters& parameters,
      const EncodeHints& hints) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return NewWholeTensorEncoder(traits_.name, spec, elements, hints,
                                 [spec, preset = parameters.As<ecsq::Preset>(),
                                  hints](const WholeTensor& tensor) {
                                   return ecsq::EncodeTensor(spec, preset,
                                                             hints, tensor);
                                 });
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec, const CodecParameters&) const override {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return ecsq::NewStreamDecoder(spec, elements);
  }

  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec& spec, const CodecParameters&) const override {
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
