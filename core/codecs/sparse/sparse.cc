// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/sparse/sparse.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "codecs/block_codec.h"
#include "codecs/option_schema.h"
#include "codecs/sparse/block.h"
#include "kernels/elements.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using kernels::EncodeFault;
using sparse::BlockShape;
using sparse::kBlockElements;
using sparse::kWhole;

struct Parameters {
  uint64_t sparsity = 0;  // of kWhole
  uint32_t group = 0;
};

const OptionSchema<Parameters>& Schema() {
  static const auto* const schema = new OptionSchema<Parameters>(
      "sparse", {{{.name = "sparsity",
                   .type = CodecOption::Type::kDecimal,
                   .most = 1,
                   .default_value = 0.5,
                   .always_written = true,
                   .description = "Share of the values that become zero"},
                  [](double value, Parameters* out) {
                    out->sparsity =
                        static_cast<uint64_t>(std::llround(value * kWhole));
                  }},
                 {GroupSizeOption(), [](double value, Parameters* out) {
                    out->group = static_cast<uint32_t>(value);
                  }}});
  return *schema;
}

class Scheme : public BlockScheme {
 public:
  Scheme(DType dtype, uint64_t elements, Parameters parameters)
      : dtype_(dtype), elements_(elements), parameters_(parameters) {}

  Sizes At(uint64_t element) const override {
    const BlockShape shape = Shape(element);
    return {shape.elements, shape.PayloadSize()};
  }

  EncodeFault Encode(uint64_t element, const uint8_t* source, uint8_t* payload,
                     uint8_t* decoded, DistortionSums* sums) override {
    const BlockShape shape = Shape(element);
    float values[kBlockElements];
    return EncodeValues(
        dtype_, source, absl::MakeSpan(values, shape.elements),
        [&](absl::Span<float> block) {
          return sparse::EncodeBlock(shape, block, payload);
        },
        decoded, sums);
  }

  absl::Status Decode(uint64_t element, const uint8_t* payload,
                      uint8_t* decoded) override {
    const BlockShape shape = Shape(element);
    float values[kBlockElements];
    const auto y = absl::MakeSpan(values, shape.elements);
    KVC_RETURN_IF_ERROR(sparse::DecodeBlock(shape, payload, y));
    StoreElements(dtype_, y, decoded);
    return absl::OkStatus();
  }

 private:
  BlockShape Shape(uint64_t element) const {
    return {std::min<uint64_t>(elements_ - element, kBlockElements),
            parameters_.group, parameters_.sparsity};
  }

  const DType dtype_;
  const uint64_t elements_;
  const Parameters parameters_;
};

class Sparse : public BlockCodec {
 public:
  Sparse() {
    traits_.name = Schema().codec();
    traits_.description =
        "The values of largest magnitude of every 4096 as symmetric 4-bit "
        "integers, with a bitmap of where they are; zeros for the others";
    traits_.options = Schema().options();
    traits_.TakesNumbers();
    traits_.streaming = true;
    traits_.fixed_size = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    return Schema().Parse(text);
  }

  std::vector<std::string> SelfTestParameters() const override {
    return {"0.5", "0.25"};
  }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec,
      const CodecParameters& parameters) const override {
    const auto& values = parameters.As<Parameters>();
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return PayloadSize(elements, values);
  }

 private:
  static uint64_t PayloadSize(uint64_t elements, Parameters parameters) {
    const BlockShape whole = {kBlockElements, parameters.group,
                              parameters.sparsity};
    const BlockShape last = {elements % kBlockElements, parameters.group,
                             parameters.sparsity};
    return elements / kBlockElements * whole.PayloadSize() + last.PayloadSize();
  }

  absl::StatusOr<BlockTensor> Tensor(
      const TensorSpec& spec,
      const CodecParameters& parameters) const override {
    const auto& values = parameters.As<Parameters>();
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    const BlockShape most = {std::min<uint64_t>(elements, kBlockElements),
                             values.group, values.sparsity};
    return BlockTensor{
        .codec = traits_.name,
        .name = spec.name,
        .dtype = spec.dtype,
        .elements = elements,
        .payload_size = PayloadSize(elements, values),
        .most = {most.elements, most.PayloadSize()},
        .scheme = std::make_unique<Scheme>(spec.dtype, elements, values)};
  }

  CodecTraits traits_;
};

}  // namespace

const Codec& SparseCodec() {
  static const Sparse* const codec = new Sparse;
  return *codec;
}

}  // namespace kvcompress
