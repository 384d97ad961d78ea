// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/int4_kivi/int4_kivi.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "codecs/block_codec.h"
#include "codecs/int4_kivi/unit.h"
#include "codecs/option_schema.h"
#include "kernels/elements.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using int4_kivi::UnitShape;
using kernels::EncodeFault;

// More channels in a head are not told apart: a unit stays within some 500 KiB.
constexpr uint64_t kMaxChannels = 1024;

// Heads of tokens of channels. A tensor without four dimensions, or with too
// many channels, is one head whose tokens are groups.
struct Geometry {
  uint64_t heads = 1;
  uint64_t head_elements = 0;
  uint64_t channels = 0;
  // Elements at the start of a head that are kept as they are.
  uint64_t exact = 0;
  uint64_t unit_elements = 0;  // most
  uint64_t group = 0;          // as in UnitShape

  Geometry(const TensorSpec& spec, uint64_t elements, uint32_t group_size) {
    if (elements == 0) return;
    if (spec.shape.size() == 4 && spec.shape[3] <= kMaxChannels) {
      heads = spec.shape[0] * spec.shape[1];
      channels = spec.shape[3];
      exact = channels;
      group = spec.role == TensorRole::kKey ? 0 : group_size;
    } else {
      channels = group_size;
      group = group_size;
    }
    head_elements = elements / heads;
    unit_elements = channels * group_size;
  }

  UnitShape Unit(uint64_t count) const { return {count, channels, group}; }

  // The sizes of the largest block: the exact elements, or a unit.
  BlockScheme::Sizes Most(DType dtype) const {
    if (head_elements == 0) return {};
    const uint64_t unit = std::min(unit_elements, head_elements - exact);
    return {std::max(exact, unit),
            std::max(exact * DTypeSize(dtype), Unit(unit).PayloadSize())};
  }

  uint64_t PayloadSize(DType dtype) const {
    if (head_elements == 0) return 0;
    const uint64_t rest = head_elements - exact;
    return heads * (exact * DTypeSize(dtype) +
                    rest / unit_elements * Unit(unit_elements).PayloadSize() +
                    Unit(rest % unit_elements).PayloadSize());
  }
};

class Scheme : public BlockScheme {
 public:
  Scheme(DType dtype, Geometry geometry) : dtype_(dtype), geometry_(geometry) {}

  Sizes At(uint64_t element) const override {
    const uint64_t position = element % geometry_.head_elements;
    if (position < geometry_.exact) {
      return {geometry_.exact, geometry_.exact * DTypeSize(dtype_)};
    }
    const size_t count =
        std::min(geometry_.unit_elements, geometry_.head_elements - position);
    return {count, geometry_.Unit(count).PayloadSize()};
  }

  EncodeFault Encode(uint64_t element, const uint8_t* source, uint8_t* payload,
                     uint8_t* decoded, DistortionSums* sums) override {
    const Sizes sizes = At(element);
    values_.resize(sizes.elements);
    if (Exact(element)) return Keep(source, sizes, payload, decoded, sums);
    return EncodeValues(
        dtype_, source, absl::MakeSpan(values_),
        [&](absl::Span<float> values) {
          return EncodeUnit(geometry_.Unit(sizes.elements), values, payload);
        },
        decoded, sums);
  }

  absl::Status Decode(uint64_t element, const uint8_t* payload,
                      uint8_t* decoded) override {
    const Sizes sizes = At(element);
    values_.resize(sizes.elements);
    if (Exact(element)) {
      std::memcpy(decoded, payload, sizes.payload);
      if (!LoadFinite(dtype_, payload, absl::MakeSpan(values_))) {
        return absl::OkStatus();
      }
      return absl::DataLossError("a value of a kept token is not finite");
    }
    KVC_RETURN_IF_ERROR(DecodeUnit(geometry_.Unit(sizes.elements), payload,
                                   absl::MakeSpan(values_)));
    StoreElements(dtype_, values_, decoded);
    return absl::OkStatus();
  }

 private:
  bool Exact(uint64_t element) const {
    return element % geometry_.head_elements < geometry_.exact;
  }

  // As they are: values in binary32 are not all that an F64 has.
  EncodeFault Keep(const uint8_t* source, Sizes sizes, uint8_t* payload,
                   uint8_t* decoded, DistortionSums* sums) {
    const absl::Span<float> values = absl::MakeSpan(values_);
    if (const std::optional<size_t> fault =
            LoadFinite(dtype_, source, values)) {
      return {EncodeFault::Kind::kNotFinite, *fault};
    }
    std::memcpy(payload, source, sizes.payload);
    if (decoded != nullptr) std::memcpy(decoded, source, sizes.payload);
    *sums = CompareElements(dtype_, source, source, sizes.elements);
    return {};
  }

  const DType dtype_;
  const Geometry geometry_;
  std::vector<float> values_;
};

struct Parameters {
  uint32_t group = 0;  // tokens, or elements, that share a scale
};

const OptionSchema<Parameters>& Schema() {
  static const auto* const schema = new OptionSchema<Parameters>(
      "int4-kivi", {{GroupSizeOption(), [](double value, Parameters* out) {
                       out->group = static_cast<uint32_t>(value);
                     }}});
  return *schema;
}

class Int4Kivi : public BlockCodec {
 public:
  Int4Kivi() {
    traits_.name = Schema().codec();
    traits_.description =
        "Asymmetric 4-bit integers: keys in groups of tokens, channel by "
        "channel, all else in groups of consecutive elements; the first token "
        "of a head exact";
    traits_.options = Schema().options();
    traits_.TakesNumbers();
    traits_.streaming = true;
    traits_.fixed_size = true;
    traits_.role_aware = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    return Schema().Parse(text);
  }

  std::vector<std::string> SelfTestParameters() const override {
    return {"32", "64", "128"};
  }

  Candidates AutoCandidates(Effort) const override { return {{""}}; }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec,
      const CodecParameters& parameters) const override {
    KVC_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(spec, parameters));
    return geometry.PayloadSize(spec.dtype);
  }

 private:
  absl::StatusOr<Geometry> GeometryOf(const TensorSpec& spec,
                                      const CodecParameters& parameters) const {
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return Geometry(spec, elements, parameters.As<Parameters>().group);
  }

  absl::StatusOr<BlockTensor> Tensor(
      const TensorSpec& spec,
      const CodecParameters& parameters) const override {
    KVC_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(spec, parameters));
    return BlockTensor{
        .codec = traits_.name,
        .name = spec.name,
        .dtype = spec.dtype,
        .elements = geometry.heads * geometry.head_elements,
        .payload_size = geometry.PayloadSize(spec.dtype),
        .most = geometry.Most(spec.dtype),
        .scheme = std::make_unique<Scheme>(spec.dtype, geometry)};
  }

  CodecTraits traits_;
};

}  // namespace

const Codec& Int4KiviCodec() {
  static const Int4Kivi* const codec = new Int4Kivi;
  return *codec;
}

}  // namespace kvcompress
