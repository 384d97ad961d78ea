// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "tensor/whole_tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/elements.h"
#include "kvcompress/error.h"
#include "status/macros.h"
#include "tensor/grow.h"
#include "tensor/not_finite.h"
#include "tensor/slabs.h"

namespace kvcompress {
namespace {

class WholeTensorEncoder : public TensorEncoder {
 public:
  WholeTensorEncoder(std::string codec, const TensorSpec& spec,
                     uint64_t elements, const EncodeHints& hints,
                     EncodeWhole encode, bool takes_not_finite)
      : codec_(std::move(codec)),
        spec_(spec),
        encode_(std::move(encode)),
        takes_not_finite_(takes_not_finite),
        size_(elements * DTypeSize(spec.dtype)),
        checkpoint_(hints.checkpoint),
        buffers_(hints.buffers),
        held_(hints.source),
        bytes_(hints.buffers, &EncoderBuffers::source) {
    bytes_->clear();
  }

  bool measures_tokens() const override { return true; }

  absl::Status Append(absl::string_view bytes, std::string*,
                      std::string*) override {
    // In parts that are still in the cache when they are checked.
    constexpr size_t kAtOnce = 1 << 16;
    // At once, so that what is there need not move when more comes.
    if (held_.empty()) Reserve(size_, &*bytes_);
    for (; !bytes.empty();
         bytes.remove_prefix(std::min(kAtOnce, bytes.size()))) {
      const absl::string_view part = bytes.substr(0, kAtOnce);
      if (held_.empty()) bytes_->append(part.data(), part.size());
      given_ += part.size();
      KVC_RETURN_IF_ERROR(CheckFinite());
    }
    return absl::OkStatus();
  }

  absl::Status Finish(std::string* payload, std::string* decoded) override {
    if (given_ != size_) {
      return MakeError(absl::StatusCode::kInternal, "the tensor is incomplete",
                       {.reason = "INTERNAL", .tensor = spec_.name});
    }
    if (size_ == 0) return absl::OkStatus();
    EncodedTensor encoded = encode_({.bytes = source(),
                                     .own = held_.empty() ? &*bytes_ : nullptr,
                                     .largest = largest_,
                                     .wants_decoded = decoded != nullptr});
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint_));
    AppendInSlabs(checkpoint_, &encoded.payload, payload);
    if (buffers_ != nullptr) {
      encoded.payload.clear();
      buffers_->payload.swap(encoded.payload);
    }
    if (decoded != nullptr) {
      AppendInSlabs(checkpoint_, &encoded.decoded, decoded);
    }
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint_));
    distortion_ = encoded.distortion;
    tokens_ = encoded.tokens;
    key_hints_ = std::move(encoded.key_hints);
    return absl::OkStatus();
  }

  const DistortionAccumulator& distortion() const override {
    return distortion_;
  }

  const TokenSums* token_sums() const override {
    return tokens_ ? &*tokens_ : nullptr;
  }

  KeyHints key_hints() const override { return key_hints_; }

 private:
  absl::string_view source() const {
    return held_.empty() ? absl::string_view(*bytes_) : held_;
  }

  // Checks the elements that are whole and were not checked before.
  absl::Status CheckFinite() {
    const size_t element_size = DTypeSize(spec_.dtype);
    const uint64_t whole = given_ / element_size;
    const auto* const bytes = reinterpret_cast<const uint8_t*>(source().data());
    const float largest = LargestMagnitude(
        spec_.dtype, bytes + checked_ * element_size, whole - checked_);
    if (std::isfinite(largest) || takes_not_finite_) {
      largest_ = std::isfinite(largest)
                     ? std::max(largest_, largest)
                     : std::numeric_limits<float>::infinity();
      checked_ = whole;
      return absl::OkStatus();
    }
    for (float value;; ++checked_) {
      LoadElements(spec_.dtype, bytes + checked_ * element_size,
                   absl::MakeSpan(&value, 1));
      if (!std::isfinite(value)) {
        return NotFiniteError(codec_, spec_.name, checked_);
      }
    }
  }

  const std::string codec_;
  const TensorSpec spec_;
  const EncodeWhole encode_;
  const bool takes_not_finite_;
  const uint64_t size_;
  Checkpoint* const checkpoint_;
  EncoderBuffers* const buffers_;  // may be null
  const absl::string_view held_;   // the tensor, where the caller has it
  Borrowed<std::string> bytes_;    // else
  uint64_t given_ = 0;             // bytes
  uint64_t checked_ = 0;           // elements
  float largest_ = 0;              // magnitude of those
  DistortionAccumulator distortion_;
  std::optional<TokenSums> tokens_;
  KeyHints key_hints_;
};

}  // namespace

std::unique_ptr<TensorEncoder> NewWholeTensorEncoder(
    std::string codec, const TensorSpec& spec, uint64_t elements,
    const EncodeHints& hints, EncodeWhole encode, bool takes_not_finite) {
  return std::make_unique<WholeTensorEncoder>(std::move(codec), spec, elements,
                                              hints, std::move(encode),
                                              takes_not_finite);
}

}  // namespace kvcompress
