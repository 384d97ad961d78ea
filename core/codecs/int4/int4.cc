// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/int4/int4.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codecs/block_stream.h"
#include "kernels/kernels.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using kernels::EncodeFault;
using kernels::Int4BlockSize;
using kernels::kBlockElements;

constexpr uint32_t kGroups[] = {32, 64, 128};
constexpr uint32_t kDefaultGroup = 64;

// 0 when `parameters` is no group size.
uint32_t ParseGroup(absl::string_view parameters) {
  for (uint32_t group : kGroups) {
    if (parameters == absl::StrCat(group)) return group;
  }
  return 0;
}

absl::StatusOr<uint32_t> RequireGroup(absl::string_view parameters) {
  if (const uint32_t group = ParseGroup(parameters); group != 0) return group;
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("int4 has no parameters ", QuoteName(parameters)),
      {.reason = "INVALID_CODEC"});
}

uint64_t PayloadSize(uint64_t elements, uint32_t group) {
  const uint64_t groups = elements / group + (elements % group != 0);
  return 2 * groups + elements / 2 + elements % 2;
}

class Encoder : public TensorEncoder {
 public:
  Encoder(const TensorSpec& spec, uint64_t elements, uint32_t group)
      : name_(spec.name),
        element_size_(DTypeSize(spec.dtype)),
        group_(group),
        kernel_(kernels::Active().int4_encode[static_cast<size_t>(spec.dtype)]),
        blocks_(elements * element_size_, kBlockElements * element_size_) {}

  absl::Status Append(absl::string_view bytes, std::string* payload,
                      std::string* decoded) override {
    return blocks_.Append(bytes, [&](absl::string_view block) {
      return EncodeBlock(block, payload, decoded);
    });
  }

  absl::Status Finish(std::string*, std::string*) override {
    if (blocks_.done()) return absl::OkStatus();
    return MakeError(absl::StatusCode::kInternal, "the tensor is incomplete",
                     {.reason = "INTERNAL", .tensor = name_});
  }

  const DistortionAccumulator& distortion() const override {
    return distortion_;
  }

 private:
  absl::Status EncodeBlock(absl::string_view block, std::string* payload,
                           std::string* decoded) {
    const size_t count = block.size() / element_size_;
    const size_t payload_begin = payload->size();
    payload->resize(payload_begin + Int4BlockSize(count, group_));
    uint8_t* decoded_block = nullptr;
    if (decoded != nullptr) {
      const size_t decoded_begin = decoded->size();
      decoded->resize(decoded_begin + block.size());
      decoded_block =
          reinterpret_cast<uint8_t*>(decoded->data() + decoded_begin);
    }
    DistortionSums sums;
    const EncodeFault fault =
        kernel_(reinterpret_cast<const uint8_t*>(block.data()), count, group_,
                reinterpret_cast<uint8_t*>(payload->data() + payload_begin),
                decoded_block, &sums);
    if (fault.kind != EncodeFault::Kind::kNone) return Refuse(fault);
    distortion_.Add(sums);
    element_ += count;
    return absl::OkStatus();
  }

  absl::Status Refuse(const EncodeFault& fault) const {
    const bool not_finite = fault.kind == EncodeFault::Kind::kNotFinite;
    return MakeError(absl::StatusCode::kInvalidArgument,
                     not_finite
                         ? "NaN and infinity cannot be quantized by int4"
                         : "the value is too large for int4: its group's scale "
                           "exceeds binary16",
                     {.reason = not_finite ? "NOT_FINITE" : "SCALE_OVERFLOW",
                      .tensor = name_,
                      .element = element_ + fault.element});
  }

  const std::string name_;
  const uint64_t element_size_;
  const uint32_t group_;
  const kernels::Int4EncodeBlock kernel_;
  BlockStream blocks_;
  uint64_t element_ = 0;
  DistortionAccumulator distortion_;
};

class Decoder : public TensorDecoder {
 public:
  Decoder(const TensorSpec& spec, uint64_t elements, uint32_t group)
      : name_(spec.name),
        element_size_(DTypeSize(spec.dtype)),
        group_(group),
        kernel_(kernels::Active().int4_decode[static_cast<size_t>(spec.dtype)]),
        remaining_elements_(elements),
        blocks_(PayloadSize(elements, group),
                Int4BlockSize(kBlockElements, group)) {}

  absl::Status Append(absl::string_view payload,
                      std::string* decoded) override {
    return blocks_.Append(payload, [&](absl::string_view block) {
      return DecodeBlock(block, decoded);
    });
  }

  absl::Status Finish(std::string*) override {
    if (blocks_.done()) return absl::OkStatus();
    return Damaged("the payload is incomplete");
  }

 private:
  absl::Status DecodeBlock(absl::string_view block, std::string* decoded) {
    const size_t count =
        std::min<uint64_t>(remaining_elements_, kBlockElements);
    const size_t begin = decoded->size();
    decoded->resize(begin + count * element_size_);
    if (!kernel_(reinterpret_cast<const uint8_t*>(block.data()), count, group_,
                 reinterpret_cast<uint8_t*>(decoded->data() + begin))) {
      return Damaged("the payload breaks the format");
    }
    remaining_elements_ -= count;
    return absl::OkStatus();
  }

  absl::Status Damaged(absl::string_view message) const {
    return MakeError(absl::StatusCode::kDataLoss, message,
                     {.reason = "PAYLOAD_DAMAGED", .tensor = name_});
  }

  const std::string name_;
  const uint64_t element_size_;
  const uint32_t group_;
  const kernels::Int4DecodeBlock kernel_;
  uint64_t remaining_elements_;
  BlockStream blocks_;
};

class Int4 : public Codec {
 public:
  Int4() {
    traits_.name = "int4";
    traits_.description =
        "Symmetric 4-bit integers with one 16-bit scale for each group of "
        "consecutive elements";
    traits_.parameters = {{.name = "group_size",
                           .default_value = absl::StrCat(kDefaultGroup),
                           .description = "Elements that share a scale"}};
    for (uint32_t group : kGroups) {
      traits_.parameters[0].values.push_back(absl::StrCat(group));
    }
    traits_.dtypes = {DType::kF32, DType::kF16, DType::kBF16};
    traits_.streaming = true;
    traits_.fixed_size = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<std::string> Resolve(
      const CodecChoice& choice) const override {
    if (!choice.preset.empty()) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "int4 has no presets",
                       {.reason = "INVALID_PRESET", .field = "options.preset"});
    }
    const std::string parameters =
        absl::StrCat(choice.group_size.value_or(kDefaultGroup));
    if (ParseGroup(parameters) == 0) {
      return MakeError(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("group_size is ", parameters, ", but must be one of ",
                       absl::StrJoin(kGroups, ", ")),
          {.reason = "INVALID_GROUP_SIZE", .field = "options.group_size"});
    }
    return parameters;
  }

  std::vector<CodecChoice> SelfTestChoices() const override {
    std::vector<CodecChoice> choices;
    for (uint32_t group : kGroups) {
      choices.push_back({.name = traits_.name, .group_size = group});
    }
    return choices;
  }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, absl::string_view parameters) const override {
    KVC_ASSIGN_OR_RETURN(const uint32_t group, RequireGroup(parameters));
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return PayloadSize(elements, group);
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, absl::string_view parameters,
      const EncodeHints&) const override {
    return New<TensorEncoder, Encoder>(spec, parameters);
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec& spec, absl::string_view parameters) const override {
    return New<TensorDecoder, Decoder>(spec, parameters);
  }

 private:
  template <typename Interface, typename Implementation>
  static absl::StatusOr<std::unique_ptr<Interface>> New(
      const TensorSpec& spec, absl::string_view parameters) {
    KVC_ASSIGN_OR_RETURN(const uint32_t group, RequireGroup(parameters));
    KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
    return std::make_unique<Implementation>(spec, elements, group);
  }

  CodecTraits traits_;
};

}  // namespace

const Codec& Int4Codec() {
  static const Int4* const codec = new Int4;
  return *codec;
}

}  // namespace kvcompress
