// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/grouped/grouped.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "status/macros.h"

namespace kvcompress {
namespace {

using kernels::BlockLayout;
using kernels::BlockSize;
using kernels::EncodeFault;
using kernels::GroupedKernels;
using kernels::kBlockElements;

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

class Scheme : public BlockScheme {
 public:
  Scheme(DType dtype, int bits, uint64_t elements, BlockLayout layout,
         const GroupedKernels& kernels)
      : bits_(bits),
        elements_(elements),
        layout_(layout),
        encode_(kernels.encode[static_cast<size_t>(dtype)]),
        decode_(kernels.decode[static_cast<size_t>(dtype)]) {}

  Sizes At(uint64_t element) const override {
    const size_t count = Count(element);
    return {count, BlockSize(bits_, count, layout_.group)};
  }

  EncodeFault Encode(uint64_t element, const uint8_t* source, uint8_t* payload,
                     uint8_t* decoded, DistortionSums* sums) override {
    layout_.count = Count(element);
    return encode_(source, layout_, payload, decoded, sums);
  }

  absl::Status Decode(uint64_t element, const uint8_t* payload,
                      uint8_t* decoded) override {
    layout_.count = Count(element);
    if (decode_(payload, layout_, decoded)) return absl::OkStatus();
    return absl::DataLossError(
        bits_ == 8 ? "a scale is negative or not finite"
                   : "a scale is negative or not finite, or the unused half of "
                     "the last byte is not zero");
  }

 private:
  size_t Count(uint64_t element) const {
    return std::min<uint64_t>(elements_ - element, kBlockElements);
  }

  const int bits_;
  const uint64_t elements_;
  BlockLayout layout_;
  const kernels::EncodeBlock encode_;
  const kernels::DecodeBlock decode_;
};

}  // namespace

GroupedCodec::GroupedCodec(Options options)
    : options_(std::move(options)),
      schema_(options_.name,
              {{GroupSizeOption(), [](double value, Parameters* out) {
                  out->group = static_cast<uint32_t>(value);
                }}}) {
  traits_.name = options_.name;
  traits_.description = options_.description;
  traits_.options = schema_.options();
  traits_.TakesNumbers();
  traits_.streaming = true;
  traits_.fixed_size = true;
}

absl::StatusOr<CodecParameters> GroupedCodec::Parse(
    absl::string_view text) const {
  return schema_.Parse(text);
}

std::vector<std::string> GroupedCodec::SelfTestParameters() const {
  return {"32", "64", "128"};
}

Codec::Candidates GroupedCodec::AutoCandidates(Effort) const { return {{""}}; }

absl::StatusOr<uint64_t> GroupedCodec::MaxEncodedSize(
    const TensorSpec& spec, const CodecParameters& parameters) const {
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
  return PayloadSize(options_.bits, elements,
                     parameters.As<Parameters>().group);
}

absl::StatusOr<BlockTensor> GroupedCodec::Tensor(
    const TensorSpec& spec, const CodecParameters& parameters) const {
  const uint32_t group = parameters.As<Parameters>().group;
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
  const size_t most = std::min<uint64_t>(elements, kBlockElements);
  const BlockLayout layout = {
      .group = group, .rotation = options_.rotate ? RotationWidth(spec) : 1};
  return BlockTensor{
      .codec = options_.name,
      .name = spec.name,
      .dtype = spec.dtype,
      .elements = elements,
      .payload_size = PayloadSize(options_.bits, elements, group),
      .most = {most, BlockSize(options_.bits, most, group)},
      .scheme =
          std::make_unique<Scheme>(spec.dtype, options_.bits, elements, layout,
                                   kernels::Active().*options_.kernels)};
}

}  // namespace kvcompress
