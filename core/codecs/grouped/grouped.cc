// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/grouped/grouped.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codecs/block_stream.h"
#include "kvcompress/error.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using kernels::BlockLayout;
using kernels::BlockSize;
using kernels::EncodeFault;
using kernels::GroupedKernels;
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

// Blocks but the last have whole groups, so their sizes add up to that of one
// block of all elements.
uint64_t PayloadSize(int bits, uint64_t elements, uint32_t group) {
  return BlockSize(bits, elements, group);
}

// The largest power of two that divides the last dimension, at most
// kMaxRotation; 1 when there is no dimension.
size_t RotationWidth(const TensorSpec& spec) {
  if (spec.shape.empty()) return 1;
  size_t width = 1;
  while (width < kernels::kMaxRotation &&
         spec.shape.back() % (2 * width) == 0) {
    width *= 2;
  }
  return width;
}

// What an encoder and a decoder know of their tensor.
struct Work {
  std::string codec;
  std::string tensor;
  DType dtype;
  int bits;
  uint64_t elements;
  BlockLayout layout;  // but for the count
  const GroupedKernels* kernels;

  size_t element_size() const { return DTypeSize(dtype); }
};

class Encoder : public TensorEncoder {
 public:
  explicit Encoder(Work work)
      : work_(std::move(work)),
        kernel_(work_.kernels->encode[static_cast<size_t>(work_.dtype)]),
        blocks_(work_.elements * work_.element_size(),
                kBlockElements * work_.element_size()) {}

  absl::Status Append(absl::string_view bytes, std::string* payload,
                      std::string* decoded) override {
    return blocks_.Append(bytes, [&](absl::string_view block) {
      return EncodeBlock(block, payload, decoded);
    });
  }

  absl::Status Finish(std::string*, std::string*) override {
    if (blocks_.done()) return absl::OkStatus();
    return MakeError(absl::StatusCode::kInternal, "the tensor is incomplete",
                     {.reason = "INTERNAL", .tensor = work_.tensor});
  }

  const DistortionAccumulator& distortion() const override {
    return distortion_;
  }

 private:
  absl::Status EncodeBlock(absl::string_view block, std::string* payload,
                           std::string* decoded) {
    BlockLayout layout = work_.layout;
    layout.count = block.size() / work_.element_size();
    const size_t payload_begin = payload->size();
    payload->resize(payload_begin +
                    BlockSize(work_.bits, layout.count, layout.group));
    uint8_t* decoded_block = nullptr;
    if (decoded != nullptr) {
      const size_t decoded_begin = decoded->size();
      decoded->resize(decoded_begin + block.size());
      decoded_block =
          reinterpret_cast<uint8_t*>(decoded->data() + decoded_begin);
    }
    DistortionSums sums;
    const EncodeFault fault =
        kernel_(reinterpret_cast<const uint8_t*>(block.data()), layout,
                reinterpret_cast<uint8_t*>(payload->data() + payload_begin),
                decoded_block, &sums);
    if (fault.kind != EncodeFault::Kind::kNone) return Refuse(fault);
    distortion_.Add(sums);
    element_ += layout.count;
    return absl::OkStatus();
  }

  absl::Status Refuse(const EncodeFault& fault) const {
    const bool not_finite = fault.kind == EncodeFault::Kind::kNotFinite;
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        not_finite ? absl::StrCat("NaN and infinity cannot be quantized by ",
                                  work_.codec)
                   : absl::StrCat("the value is too large for ", work_.codec,
                                  ": its group's scale exceeds binary16"),
        {.reason = not_finite ? "NOT_FINITE" : "SCALE_OVERFLOW",
         .tensor = work_.tensor,
         .element = element_ + fault.element});
  }

  const Work work_;
  const kernels::EncodeBlock kernel_;
  BlockStream blocks_;
  uint64_t element_ = 0;
  DistortionAccumulator distortion_;
};

class Decoder : public TensorDecoder {
 public:
  explicit Decoder(Work work)
      : work_(std::move(work)),
        kernel_(work_.kernels->decode[static_cast<size_t>(work_.dtype)]),
        remaining_elements_(work_.elements),
        blocks_(PayloadSize(work_.bits, work_.elements, work_.layout.group),
                BlockSize(work_.bits, kBlockElements, work_.layout.group)) {}

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
    BlockLayout layout = work_.layout;
    layout.count = std::min<uint64_t>(remaining_elements_, kBlockElements);
    const size_t begin = decoded->size();
    decoded->resize(begin + layout.count * work_.element_size());
    if (!kernel_(reinterpret_cast<const uint8_t*>(block.data()), layout,
                 reinterpret_cast<uint8_t*>(decoded->data() + begin))) {
      return Damaged("the payload breaks the format");
    }
    remaining_elements_ -= layout.count;
    return absl::OkStatus();
  }

  absl::Status Damaged(absl::string_view message) const {
    return MakeError(absl::StatusCode::kDataLoss, message,
                     {.reason = "PAYLOAD_DAMAGED", .tensor = work_.tensor});
  }

  const Work work_;
  const kernels::DecodeBlock kernel_;
  uint64_t remaining_elements_;
  BlockStream blocks_;
};

}  // namespace

GroupedCodec::GroupedCodec(Options options) : options_(std::move(options)) {
  traits_.name = options_.name;
  traits_.description = options_.description;
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

absl::StatusOr<std::string> GroupedCodec::Resolve(
    const CodecChoice& choice) const {
  if (!choice.preset.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(options_.name, " has no presets"),
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

std::vector<CodecChoice> GroupedCodec::SelfTestChoices() const {
  std::vector<CodecChoice> choices;
  for (uint32_t group : kGroups) {
    choices.push_back({.name = options_.name, .group_size = group});
  }
  return choices;
}

std::vector<std::string> GroupedCodec::AutoCandidates() const {
  return {absl::StrCat(kDefaultGroup)};
}

absl::StatusOr<uint32_t> GroupedCodec::RequireGroup(
    absl::string_view parameters) const {
  if (const uint32_t group = ParseGroup(parameters); group != 0) return group;
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat(options_.name, " has no parameters ", QuoteName(parameters)),
      {.reason = "INVALID_CODEC"});
}

absl::StatusOr<uint64_t> GroupedCodec::MaxEncodedSize(
    const TensorSpec& spec, absl::string_view parameters) const {
  KVC_ASSIGN_OR_RETURN(const uint32_t group, RequireGroup(parameters));
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
  return PayloadSize(options_.bits, elements, group);
}

template <typename Interface, typename Implementation>
absl::StatusOr<std::unique_ptr<Interface>> GroupedCodec::New(
    const TensorSpec& spec, absl::string_view parameters) const {
  KVC_ASSIGN_OR_RETURN(const uint32_t group, RequireGroup(parameters));
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
  return std::make_unique<Implementation>(
      Work{.codec = options_.name,
           .tensor = spec.name,
           .dtype = spec.dtype,
           .bits = options_.bits,
           .elements = elements,
           .layout = {.group = group,
                      .rotation = options_.rotate ? RotationWidth(spec) : 1},
           .kernels = &(kernels::Active().*options_.kernels)});
}

absl::StatusOr<std::unique_ptr<TensorEncoder>> GroupedCodec::NewEncoder(
    const TensorSpec& spec, absl::string_view parameters,
    const EncodeHints&) const {
  return New<TensorEncoder, Encoder>(spec, parameters);
}

absl::StatusOr<std::unique_ptr<TensorDecoder>> GroupedCodec::NewDecoder(
    const TensorSpec& spec, absl::string_view parameters) const {
  return New<TensorDecoder, Decoder>(spec, parameters);
}

}  // namespace kvcompress
