// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The encoding end of codecs that look at a whole tensor. Internal to the
// library.

#ifndef KVCOMPRESS_TENSOR_WHOLE_TENSOR_H_
#define KVCOMPRESS_TENSOR_WHOLE_TENSOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvcompress/codec.h"
#include "kvcompress/metrics.h"
#include "kvcompress/tensor.h"
#include "metrics/token_quality.h"

namespace kvcompress {

// A buffer of EncoderBuffers, or an own one, for as long as this lives.
template <typename Buffer>
class Borrowed {
 public:
  // `from` is null or outlives this.
  Borrowed(EncoderBuffers* from, Buffer EncoderBuffers::*which)
      : from_(from == nullptr ? nullptr : &(from->*which)) {
    if (from_ != nullptr) buffer_.swap(*from_);
  }
  ~Borrowed() {
    if (from_ != nullptr) buffer_.swap(*from_);
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  Buffer& operator*() { return buffer_; }
  const Buffer& operator*() const { return buffer_; }
  Buffer* operator->() { return &buffer_; }
  const Buffer* operator->() const { return &buffer_; }

 private:
  Buffer* const from_;
  Buffer buffer_;
};

struct EncodedTensor {
  std::string payload;
  std::string decoded;              // if it is wanted
  std::optional<TokenSums> tokens;  // if the tensor has tokens
  DistortionAccumulator distortion;
  KeyHints key_hints;
};

// A tensor with elements.
struct WholeTensor {
  absl::string_view bytes;
  std::string* own = nullptr;  // has the bytes, and may be taken away
  float largest = 0;           // magnitude; infinity where one is not finite
  bool wants_decoded = false;  // else EncodedTensor::decoded is not looked at
};
using EncodeWhole = std::function<EncodedTensor(const WholeTensor& tensor)>;

// Collects a tensor and encodes it at its end; when the checkpoint stops while
// it does, the result of `encode` is unspecified. Values that are not finite
// are refused as they come, unless `takes_not_finite`. Of `hints` it takes
// source, buffers and checkpoint.
// REQUIRES: the spec has `elements` elements of a compressible type.
std::unique_ptr<TensorEncoder> NewWholeTensorEncoder(
    std::string codec, const TensorSpec& spec, uint64_t elements,
    const EncodeHints& hints, EncodeWhole encode,
    bool takes_not_finite = false);

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_WHOLE_TENSOR_H_
