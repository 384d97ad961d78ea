// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/sparse/sparse.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codecs/block_codec.h"
#include "codecs/sparse/block.h"
#include "kernels/elements.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using kernels::EncodeFault;
using sparse::BlockShape;
using sparse::kBlockElements;
using sparse::kWhole;

constexpr double kDefaultSparsity = 0.5;

// "0.5" for 5000 of 10000: no zeros that could be left out.
std::string SparsityText(uint64_t parts) {
  if (parts % kWhole == 0) return absl::StrCat(parts / kWhole);
  std::string text = absl::StrCat("0.", absl::Dec(parts, absl::kZeroPad4));
  return text.substr(0, text.find_last_not_of('0') + 1);
}

struct Parameters {
  uint64_t sparsity = 0;  // of kWhole
  uint32_t group = 0;
};

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

  bool Decode(uint64_t element, const uint8_t* payload,
              uint8_t* decoded) override {
    const BlockShape shape = Shape(element);
    float values[kBlockElements];
    const auto y = absl::MakeSpan(values, shape.elements);
    if (!sparse::DecodeBlock(shape, payload, y)) return false;
    StoreElements(dtype_, y, decoded);
    return true;
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
    traits_.name = "sparse";
    traits_.description =
        "The values of largest magnitude of every 4096 as symmetric 4-bit "
        "integers, with a bitmap of where they are; zeros for the others";
    traits_.parameters = {
        GroupParameter(),
        {.name = "sparsity",
         .values = {},
         .default_value = absl::StrCat(kDefaultSparsity),
         .description = "Share of the values that become zero, from 0 to 1, "
                        "with at most four digits after the point"}};
    traits_.TakesNumbers();
    traits_.streaming = true;
    traits_.fixed_size = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<std::string> Resolve(
      const CodecChoice& choice) const override {
    const double sparsity = choice.sparsity.value_or(kDefaultSparsity);
    const double parts = std::round(sparsity * kWhole);
    if (!(sparsity >= 0 && sparsity <= 1) ||
        std::abs(sparsity * kWhole - parts) > 1e-6) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("sparsity is ", sparsity,
                       ", but must be from 0 to 1 with at most four digits "
                       "after the point"),
          {.reason = "INVALID_SPARSITY", .field = "options.sparsity"});
    }
    KVC_ASSIGN_OR_RETURN(const std::string group, ResolveGroup(choice));
    return absl::StrCat(SparsityText(static_cast<uint64_t>(parts)), ",", group);
  }

  std::vector<CodecChoice> SelfTestChoices() const override {
    return {{.name = traits_.name}, {.name = traits_.name, .sparsity = 0.25}};
  }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, absl::string_view text) const override {
    KVC_ASSIGN_OR_RETURN(const Parameters parameters, Parse(text));
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return PayloadSize(elements, parameters);
  }

 private:
  static uint64_t PayloadSize(uint64_t elements, Parameters parameters) {
    const BlockShape whole = {kBlockElements, parameters.group,
                              parameters.sparsity};
    const BlockShape last = {elements % kBlockElements, parameters.group,
                             parameters.sparsity};
    return elements / kBlockElements * whole.PayloadSize() + last.PayloadSize();
  }

  absl::StatusOr<Parameters> Parse(absl::string_view text) const {
    const std::pair<absl::string_view, absl::string_view> both =
        absl::StrSplit(text, absl::MaxSplits(',', 1));
    Parameters parameters;
    KVC_ASSIGN_OR_RETURN(parameters.group,
                         RequireGroup(traits_.name, both.second));
    double sparsity;
    if (both.first.size() <= 6 && absl::SimpleAtod(both.first, &sparsity) &&
        sparsity >= 0 && sparsity <= 1) {
      parameters.sparsity =
          static_cast<uint64_t>(std::round(sparsity * kWhole));
      if (SparsityText(parameters.sparsity) == both.first) return parameters;
    }
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("sparse has no parameters ", QuoteName(text)),
                     {.reason = "INVALID_CODEC"});
  }

  absl::StatusOr<BlockTensor> Tensor(const TensorSpec& spec,
                                     absl::string_view text) const override {
    KVC_ASSIGN_OR_RETURN(const Parameters parameters, Parse(text));
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    const BlockShape most = {std::min<uint64_t>(elements, kBlockElements),
                             parameters.group, parameters.sparsity};
    return BlockTensor{
        .codec = traits_.name,
        .name = spec.name,
        .dtype = spec.dtype,
        .elements = elements,
        .payload_size = PayloadSize(elements, parameters),
        .most = {most.elements, most.PayloadSize()},
        .scheme = std::make_unique<Scheme>(spec.dtype, elements, parameters)};
  }

  CodecTraits traits_;
};

}  // namespace

const Codec& SparseCodec() {
  static const Sparse* const codec = new Sparse;
  return *codec;
}

}  // namespace kvcompress
